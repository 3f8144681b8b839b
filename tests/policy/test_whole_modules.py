"""Modules that a canonical form tells whole, whatever they call in turn."""

import pytest
import torch
from torch import nn

from drkernel.policy.canonical import canonical
from tests.policy.forms import form_of
from tests.policy.test_canonical import outputs

SCAN = """
import torch
import torch.nn as nn

class Step(nn.Module):
    def forward(self, y, x):
        return torch.tanh(y + x)

class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = Step()

    def forward(self, x):
        y = x[:, 0]
        for k in range(1, x.shape[1]):
            y = {step}
        return y

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scan, self.fc = Scan(), nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(self.scan(torch.relu(x)))

def get_inputs():
    return [torch.randn(2, {length}, 4)]

def get_init_inputs():
    return []
"""


def test_recurrent_modules_and_attention_are_told_whole():
    start = "self.r = nn.LSTM(8, 5, batch_first=True)\nself.a = nn.MultiheadAttention(8, 2)"
    assert form_of("y, _ = self.a(x, x, x)\nreturn self.r(y)[0]", "torch.randn(4, 3, 8)", start) == [
        "t0, *_ = self.m0(in0, in0, in0)  # nn.MultiheadAttention()",
        "t1, *_ = self.m1(t0)  # nn.LSTM(8, 5, batch_first=True); (4, 3, 5)",
    ]


def test_what_they_are_given_and_give_keeps_its_form():
    start = (
        "self.r = nn.LSTM(8, 5, 2, batch_first=True)\nself.a = nn.MultiheadAttention(8, 2)\n"
        "self.b = nn.Parameter(torch.zeros(3, 3))"
    )
    state = "torch.zeros(2, 4, 5)"
    body = f"h, c = {state}, {state}\n_, (h, c) = self.r(x, (h, c))\nreturn self.r(x, hx=(c, h))[0]"
    zeros = "torch.zeros(size=(2, 4, 5))  # float32 (2, 4, 5)"
    assert form_of(body, "torch.randn(4, 3, 8)", start) == [
        f"t0 = {zeros}",
        f"t1 = {zeros}",
        "_, (t2, t3) = self.m0(in0, (t0, t1))  # nn.LSTM(8, 5, num_layers=2, batch_first=True); (4, 3, 5)",
        "t4, *_ = self.m0(in0, hx=(t3, t2))  # nn.LSTM(8, 5, num_layers=2, batch_first=True); (4, 3, 5)",
    ]
    body = "return self.a(x, x, x, attn_mask=self.b, need_weights=False)[0]"
    line = "t0, *_ = self.m0(in0, in0, in0, attn_mask=self.m1, need_weights=False)"
    assert form_of(body, "torch.randn(3, 4, 8)", start) == [f"{line}  # nn.MultiheadAttention(); m1: (3, 3)"]


@pytest.mark.parametrize("step", ["self.step(y, x[:, k])", "torch.tanh(y + x[:, k])"], ids=["module", "lines"])
def test_a_part_that_makes_too_many_calls_is_told_whole(step):
    """The rest of the network is told as ever; the part runs as it is written."""
    form = canonical(SCAN.format(length=1600, step=step))
    head, *lines, last = form.text.splitlines()
    assert [line.strip() for line in lines] == [
        "t0 = F.relu(in0)",
        "t1 = self.m0(t0)  # nn.Module(); (2, 4)",
        "t2 = self.m1(t1)  # F.linear(weight (4, 4), bias)",
    ]
    torch.testing.assert_close(*outputs(form.submission(f"{head}\n{last}\n"), SCAN.format(length=7, step=step)))


def test_a_forward_that_makes_too_many_calls_itself_is_told_up_to_a_limit():
    source = SCAN.replace("self.scan(torch", "Scan.forward(self, torch")
    told = [canonical(source.format(length=length, step="y + x[:, k]")) for length in (900, 2100)]
    assert [form.text.startswith("def forward") for form in told] == [True, False]
    assert len(told[0].told.lines) > 1800 and len(told[0].text.splitlines()) < 40


def test_parts_of_one_class_are_told_alike():
    source = SCAN.format(length=400, step="torch.tanh(y + x[:, k])").replace(
        "self.scan, self", "self.b, self.scan, self"
    )
    source = source.replace("= Scan(), ", "= Scan(), Scan(), ").replace(
        "self.scan(torch.relu(x))", "self.b(x) + self.scan(x)"
    )
    assert canonical(source).text.count("nn.Module()") == 2


STATE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(8, width, 3, batch_first=True)

    def forward(self, x):
        h = torch.zeros(self.lstm.num_layers, x.size(0), self.lstm.hidden_size, device=x.device)
        return self.lstm(x, (h, torch.zeros_like(h)))[0][:, -1]

batch, steps, width = 4, 512, 24

def get_inputs():
    return [torch.randn(batch, steps, 8)]

def get_init_inputs():
    return [width]
"""


def test_a_state_has_the_width_of_its_layer_at_all_sizes():
    form = canonical(STATE)
    assert "t0 = torch.zeros(size=(3, 4, 24)" in form.text
    assert "t0 = torch.zeros(size=(3, in0.shape[0], self.u0)" in form.told.lines[0].text
    answer = form.submission("def forward(self, in0):\n    return t3\n", "ModelNew")
    assert "size=(3, in0.shape[0], self.lstm.hidden_size)" in answer


def test_a_recurrent_layer_has_its_shapes_and_executes_two_steps(monkeypatch):
    executed = []
    plain = nn.LSTM.forward
    monkeypatch.setattr(nn.LSTM, "forward", lambda self, x, *more: executed.append(x.shape[1]) or plain(self, x, *more))
    assert canonical(STATE.replace("512", "511")).told.shapes["t2"] == (4, 511, 24)
    assert set(executed) == {2}
