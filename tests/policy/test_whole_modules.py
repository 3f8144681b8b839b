"""Modules that a canonical form tells whole, whatever they call in turn."""

from tests.policy.forms import form_of


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
