"""What of an answer cannot be right is left out, so that what can be right stands alone."""

import ast

import pytest

from drkernel.policy.canonical import canonical
from tests.policy.forms import source_of

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.gain

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.scaled = nn.Linear(width, width), nn.Linear(width, width), Scaled(width)

    def forward(self, x, state):
        h, (c, d) = x, state
        y = torch.relu(self.first(h)) + c
        z = torch.relu(self.second(y)) * d
        return {"y": y, "z": self.scaled(z)}

def get_inputs():
    return [torch.randn(4, 32), (torch.randn(4, 32), torch.randn(32))]

def get_init_inputs():
    return [32]
"""
FORM = canonical(TASK)
KERNEL = """\
@triton.jit
def kernel{n}(t0_ptr, o_ptr, T, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t0 = tl.load(t0_ptr + i, mask=i < T)
    tl.store(o_ptr + i, tl.maximum({used}, 0.0), mask=i < T)
def f{n}(t0):
    o = torch.empty_like(t0)
    kernel{n}[triton.cdiv(o.numel(), 1024),]({given}, BLOCK=1024)
    return o
"""
RIGHT = KERNEL.format(n=1, used="t0", given="t0, o, o.numel()")


def forward(*lines: str, head: str = "def forward(self, in0, in1):", result: str = "return t2, t6") -> str:
    return "\n".join([head, *(f"    {line}" for line in (*lines, result)), ""])


def written(answer: str) -> list[str]:
    """The lines of `forward` in the submission that an answer stands for, and what `ast` cannot take is an error."""
    source = FORM.submission(answer)
    compile(source, "submission", "exec")
    lines = source[source.index("    def forward(self, in0") :].splitlines()
    return [line.strip() for line in lines]


def test_the_form_that_they_are_about():
    assert FORM.text.splitlines() == [
        "def forward(self, in0, in1):  # in0: (4, 32); in1: ((4, 32), (32,))",
        "    t0 = self.m0(in0)  # F.linear(weight (32, 32), bias)",
        "    t1 = F.relu(t0)",
        "    t2 = t1 + in1[0]",
        "    t3 = self.m1(t2)  # F.linear(weight (32, 32), bias)",
        "    t4 = F.relu(t3)",
        "    t5 = t4 * in1[1]  # t4: (4, 32); in1[1]: (32,)",
        "    t6 = t5 * self.m2  # t5: (4, 32); m2: (32,)",
        "    return t2, t6",
    ]


def test_what_is_right_stays():
    lines = written(RIGHT + forward("t1 = f1(t0)"))
    assert "t1 = f1(t0)" in lines and "t4 = f1(t3)" in lines  # which is alike


def test_the_result_has_the_form_of_the_reference():
    assert written(RIGHT + forward("t1 = f1(t0)"))[-1] == "return {'y': t2, 'z': t6}"


@pytest.mark.parametrize("head", ["def forward(self, in0):", "def forward(self, in0, in0):", "def forward(self, x):"])
def test_the_arguments_are_those_of_the_reference(head):
    assert written(RIGHT + forward("t1 = f1(t0)", head=head))[0] == "def forward(self, in0, in1):"


@pytest.mark.parametrize(
    "wrong",
    [
        KERNEL.format(n=2, used="t7", given="t0, o, o.numel()"),  # a value that it did not load
        KERNEL.format(n=2, used="t0", given="t0, o"),  # an argument is missing
        KERNEL.format(n=2, used="t0", given="t0, t0, o, o.numel()"),  # one too many
        KERNEL.format(n=2, used="(t0", given="t0, o, o.numel()"),  # no Python
        KERNEL.format(n=2, used="t0", given="t0, o, t0.shape[2]"),  # a dimension that its tensor has not
        KERNEL.format(n=2, used="t0", given="t0, o, o.numel()").replace("o_ptr, T", "T, T"),  # one twice
        "'t4 = F.relu(t3)\"\n" + KERNEL.format(n=2, used="t9", given="t0, o, o.numel()"),
    ],
)
def test_a_kernel_that_cannot_run_takes_no_other_with_it(wrong):
    lines = written(RIGHT + wrong + forward("t1 = f1(t0)", "t4 = f2(t3)"))
    assert "t1 = f1(t0)" in lines and "t4 = f2(t3)" not in lines


@pytest.mark.parametrize(
    "made",
    [
        "t0.new_empty((*t0.shape[:-1], t0.shape[-1] - 3 + 1))",
        "t0.new_empty(t0.shape[:1])",
        "torch.empty_like(F.pad(t0, (0, 1)))",
        "t0.new_empty((t0.shape[0], triton.cdiv(t0.shape[1], 2)))",
        "t0.permute(0, 2, 1)",  # it has two dimensions
    ],
)
def test_a_call_that_makes_another_size_is_left_out(made):
    wrong = KERNEL.format(n=2, used="t0", given="t0, o, o.numel()").replace("torch.empty_like(t0)", made)
    lines = written(RIGHT + wrong + forward("t1 = f1(t0)", "t4 = f2(t3)"))
    assert "t1 = f1(t0)" in lines and "t4 = f2(t3)" not in lines


@pytest.mark.parametrize("made", ["t0.new_empty((t0.size(0), 32))", "made_elsewhere(t0)", "t0.new_empty(t0.stride(0))"])
def test_a_call_whose_size_is_right_or_not_known_stays(made):
    other = KERNEL.format(n=2, used="t0", given="t0, o, o.numel()").replace("torch.empty_like(t0)", made)
    helper = "def made_elsewhere(t0):\n    return torch.empty_like(t0)\n"
    assert "t4 = f2(t3)" in written(helper + RIGHT + other + forward("t1 = f1(t0)", "t4 = f2(t3)"))


def test_sizes_of_weights_are_those_that_are_told():
    head = "def f2(t0, p0, p1):\n    o = t0.new_empty((t0.shape[0], p0.shape[0]{more}))\n    return o\n"
    call = "t3 = f2(t2, self.m1.weight, self.m1.bias)"
    calls = lambda more: written(RIGHT + head.format(more=more) + forward("t1 = f1(t0)", call))
    assert "t3 = f2(t2, self.second.weight, self.second.bias)" in calls("")
    assert "t3 = self.second(t2)" in calls(" // 2")


JOINED = """\
@triton.jit
def kernel2(t0_ptr, t1_ptr, o_ptr, T, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < T
    t0 = tl.load(t0_ptr + i, mask=m)
    t1 = tl.load(t1_ptr + i, mask=m)
    tl.store(o_ptr + i, t0 * t1, mask=m)
def f2(t0, t1):
    t1 = t1.contiguous()
    o = torch.empty_like(t0)
    kernel2[triton.cdiv(o.numel(), 1024),](t0, t1, o, o.numel(), BLOCK=1024)
    return o
"""


@pytest.mark.parametrize(
    ("call", "wide"),
    [
        ("t5 = f2(t4, in1[1])", "t5 = f2(t4, in1[1].expand_as(t4))"),
        ("t6 = f2(t5, self.m2)", "t6 = f2(t5, self.scaled.gain.expand_as(t5))"),
        ("t2 = f2(t1, in1[0])", "t2 = f2(t1, in1[0])"),  # is as large
    ],
)
def test_what_is_read_as_if_it_were_as_large_as_the_result_is(call, wide):
    assert wide in written(JOINED + forward(call))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t1_ptr + i", "t1_ptr + i % 32"),
        ("tl.load(t1_ptr + i, mask=m)", "tl.load(t1_ptr + i, mask=i < 32)"),
        ("torch.empty_like", "torch.zeros_like"),  # of which a kernel may write a part
    ],
)
def test_what_may_be_read_right_is_given_as_it_is(old, new):
    assert "t5 = f2(t4, in1[1])" in written(JOINED.replace(old, new) + forward("t5 = f2(t4, in1[1])"))


def test_what_cannot_be_as_large_is_left_out():
    cut = JOINED.replace("t1 = t1.contiguous()", "t1 = t1[:1].contiguous()")
    assert "t5 = t4 * in1[1]" in written(RIGHT + cut + forward("t1 = f1(t0)", "t5 = f2(t4, in1[1])"))


def test_a_plan_whose_quotes_do_not_match_is_left_out():
    assert "t1 = f1(t0)" in written("'t1 = torch.einsum('ab->ab', t0)\"\n" + RIGHT + forward("t1 = f1(t0)"))


@pytest.mark.parametrize(
    "call",
    [
        "t4 = f1(t2)",  # between them is a layer whose weights it is not given
        "t6 = f1(t5)",  # reads the gain, which it is not given
        "t4 = f1(t0)",  # another value
        "t4 = f1(self.m1.bias)",
        "t4 = f1(self.m7)",
        "t4 = f1(t3, t3)",
        "t4 = f1(t44)",
    ],
)
def test_a_call_is_given_what_the_lines_are_given_that_it_stands_for(call):
    lines = written(RIGHT + forward("t1 = f1(t0)", call))
    assert "t1 = f1(t0)" in lines and call not in lines


@pytest.mark.parametrize("given", ["0", "t3", "in0", "t77"])
def test_a_first_call_is_given_the_values_that_its_arguments_are_named_after(given):
    lines = written(RIGHT + forward(f"t1 = f1({given})"))
    assert "t1 = f1(t0)" in lines and "t4 = f1(t3)" in lines


OTHER = KERNEL.format(n=2, used="2.0 * t0", given="t0, o, o.numel()")
DIRECT = """\
t6 = torch.empty_like(t5)
grid = lambda meta: (triton.cdiv(t6.numel(), meta["BLOCK"]),)
kernel2[grid](t5, t6, t6.numel(), BLOCK=1024)
"""
LOOP = """\
t4 = t3.clone()
for row in range(t4.shape[0]):
    kernel2[1,](t3[row], t4[row], t4.shape[1], BLOCK=32)
"""


@pytest.mark.parametrize(
    "answer",
    [
        RIGHT + OTHER + forward("t1 = f1(t0)", *DIRECT.splitlines()),
        RIGHT + OTHER + forward("t1 = f1(t0)", *LOOP.splitlines()),
        RIGHT + OTHER + forward("t1 = f1(t0)", "t6 = torch.cat([part for part in t5.split(8)])"),
        RIGHT + OTHER + forward("t0 = F.linear(in0, self.m0.weight)", "t1 = f1(t0 + self.m0.bias)", "t4 = f2(t3)"),
        RIGHT + OTHER + forward("t0 = f2(in0)", "y = t0 + self.m0.bias", "t4 = f1(t3)", result="return f1(y), t6"),
        RIGHT + forward("t1 = f1(t0)", result="return {'y': t2.contiguous(), 'z': t6 * 1.0}"),
        RIGHT + forward("t3 = torch.zeros_like(in0)", "t4 = f1(t3)", result="return {'y': t3, 'z': t4}"),
    ],
)
def test_an_answer_with_statements_of_its_own_stays_as_it_is(answer):
    """They may make something else than the reference's lines of these names, which what is left out would stand on."""
    answer = answer.replace("return t2, t6", "return {'y': t2, 'z': t6}")
    assert ast.dump(ast.parse(FORM.submission(answer))) == ast.dump(ast.parse(FORM.whole(answer)))


@pytest.mark.parametrize(
    "wrapper",
    [
        "def grid(meta):\n        return (blocks(o.numel()),)\n    kernel2[grid](t0, o, o.numel(), BLOCK=SIZE)",
        "import math\n    kernel2[math.ceil(o.numel() / 1024),](t0, o, o.numel(), BLOCK=1024)",
        "kernel2[blocks(o.numel()),](t0, o, o.numel(), BLOCK=SIZE)",
        "tuned[blocks(o.numel()),](t0, o, o.numel())",
        '"""Two\nlines."""\n    kernel2[blocks(o.numel()),](t0, o, o.numel(), BLOCK=SIZE)',
    ],
)
def test_functions_that_can_run_stay(wrapper):
    tuned = OTHER[: OTHER.index("def f2")].replace("kernel2", "tuned")
    before = """\
if hasattr(tl, "nothing"):
    SIZE = 512
else:
    SIZE = 1024
blocks = lambda n: (n + SIZE - 1) // SIZE
@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024})],
    key=["T"],
)
"""
    answer = OTHER.replace("kernel2[triton.cdiv(o.numel(), 1024),](t0, o, o.numel(), BLOCK=1024)", wrapper)
    source = FORM.submission(before + tuned + answer + RIGHT + forward("t1 = f1(t0)", "t4 = f2(t3)"))
    assert "t4 = f2(t3)" in source and "SIZE = 1024" in source and "triton.Config" in source


def test_an_answer_of_which_nothing_is_left_stays_as_it_is():
    answer = RIGHT + forward("t4 = f1(t2)")
    assert "t4 = f1(t2)" in written(answer)


def test_tensors_with_names_of_somebody_elses_are_called_as_wholes():
    held = "self.params = nn.ParameterDict({'0_gain': torch.ones(width)})"
    source = TASK.replace("self.gain = nn.Parameter(torch.ones(width))", held).replace(
        "self.gain", "self.params['0_gain']"
    )
    form = canonical(source)
    assert "t6 = t5 * self.m2" in form.text
    assert "self.scaled.params['0_gain']" in form.submission(RIGHT + forward("t1 = f1(t0)"))


def test_a_number_that_follows_from_a_size_needs_no_tensor():
    source = TASK.replace("torch.relu(self.first(h)) + c", "torch.relu(self.first(h) @ h.mT / h.shape[1] ** 0.5) @ c")
    form = canonical(source)
    assert "t3 = t2 / t0.shape[-1] ** 0.5" in form.text
    scaled = RIGHT.replace("def f1(t0):", "def f1(t0, s):")
    assert "t4 = f1(t2, t0.shape[-1] ** 0.5)" in form.submission(scaled + forward("t4 = f1(t2, t0.shape[-1] ** 0.5)"))


def test_a_type_that_a_call_is_asked_for_is_told():
    source = TASK.replace("torch.relu(self.first(h)) + c", "self.first(h) + torch.ones_like(c > 0, dtype=c.dtype)")
    assert "dtype=torch.float32" in canonical(source).text


def test_a_call_that_is_given_a_tensor_that_does_not_exist_is_left_out():
    """A norm by the statistics of its batch has no others."""
    start = "self.norm = nn.BatchNorm1d(8, track_running_stats=False)"
    form = canonical(source_of("return self.norm(torch.relu(x) * 2)", start=start))
    norm = KERNEL.format(n=2, used="t0", given="t0, o, o.numel()").replace("def f2(t0)", "def f2(t0, p0, p1, p2, p3)")
    calls = "t0 = f1(in0)", "t2 = f2(t1, self.m0.running_mean, self.m0.running_var, self.m0.weight, self.m0.bias)"
    source = form.submission(RIGHT + norm + forward(*calls, head="def forward(self, in0):", result="return t2"))
    assert "t0 = f1(in0)" in source and "t2 = self.norm(t1)" in source and "running_mean" not in source


def test_a_module_that_is_told_whole_has_the_tensors_that_it_has():
    start = "self.part = Block(8)"
    form = canonical(source_of("for k in range(1600):\n    x = self.part(x)\nreturn x.relu()", start=start))
    assert form.told.lines[0].text == "t0 = self.m0(in0)"
    assert {"self.m0.weight", "self.m0.bias"} <= form.told.absent
