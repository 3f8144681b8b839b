"""Element-wise operators: how PyTorch spells them, and which may follow which without making a task degenerate.

Spellings are templates over `{x}` (what came before), `{y}` (a second input), literals (`{a}`, `{eps}`, `{w}`),
attribute names and constructor arguments. The same table writes references and the torch parts of cold-start answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class State:
    """What is known of the values between two operators; it rules out identities and saturated outputs."""

    signed: bool = True
    """Both signs occur; without them `relu` or `abs` does nothing or erases everything."""
    size: str = "unit"
    """small (`tanh` is an identity, `sigmoid` a constant) | unit | large (`tanh` saturates)."""
    bounded: bool = False


@dataclass(frozen=True)
class Operator:
    """One operator, its spellings and what it does to the `State`."""

    name: str
    functional: str
    method: str = ""
    """Another spelling without state, e.g. a tensor method."""
    manual: str = ""
    """A spelling that repeats `{x}`, for bodies where `{x}` is a variable."""
    layer: str = ""
    """The constructor of an nn.Module that does it."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Placeholder of each weight, and how `functional` wants it made; with `layer` alone the text is empty."""
    literals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Placeholder of each literal and the spellings it may take."""
    second: str = ""
    """The second input as a template over sizes; `same` means a random tensor of the shape at this place."""
    prepare: str = ""
    """A statement that must precede it."""
    needs_signed: bool = False
    needs_unbounded: bool = False
    sizes: tuple[str, ...] = ("unit",)
    """The sizes of values on which it is neither an identity nor a constant."""
    leaves: Mapping[str, object] = field(default_factory=dict)
    """The fields of `State` that it sets."""

    def accepts(self, state: State) -> bool:
        """Whether this stage does something, and does not destroy everything, on such values."""
        return (
            (state.signed or not self.needs_signed)
            and not (state.bounded and self.needs_unbounded)
            and state.size in self.sizes
        )

    def after(self, state: State) -> State:
        return replace(state, **self.leaves)


_POSITIVE = {"signed": False}
_BOUNDED = {"bounded": True}
_MIXED = {"signed": True, "bounded": False}


def _activation(name: str, call: str, layer: str, **more) -> Operator:
    return Operator(name, call, layer=layer, **more)


def _saturating(name: str, call: str, method: str, layer: str, signed: bool, **more) -> Operator:
    leaves = {"signed": signed, "bounded": True}
    return Operator(name, call, method, layer=layer, needs_unbounded=True, leaves=leaves, **more)


_SIGNED = {"needs_signed": True}
_ALL = ("small", "unit", "large")

STAGES: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator(
            "relu", "F.relu({x})", "torch.relu({x})", layer="nn.ReLU()", leaves=_POSITIVE, sizes=_ALL[1:], **_SIGNED
        ),
        _activation(
            "leaky_relu",
            "F.leaky_relu({x}, {a})",
            "nn.LeakyReLU({a})",
            literals={"a": ("0.01", "0.1", "0.2")},
            sizes=_ALL[1:],
            **_SIGNED,
        ),
        _activation("silu", "F.silu({x})", "nn.SiLU()", sizes=_ALL[:2], **_SIGNED),
        _activation("gelu", "F.gelu({x})", "nn.GELU()", sizes=_ALL[:2], **_SIGNED),
        _activation(
            "gelu_tanh", 'F.gelu({x}, approximate="tanh")', 'nn.GELU(approximate="tanh")', sizes=_ALL[:2], **_SIGNED
        ),
        _activation("elu", "F.elu({x})", "nn.ELU()", **_SIGNED),
        _activation("mish", "F.mish({x})", "nn.Mish()", **_SIGNED),
        _activation("hardswish", "F.hardswish({x})", "nn.Hardswish()", needs_unbounded=True, **_SIGNED),
        _activation("softplus", "F.softplus({x})", "nn.Softplus()", leaves=_POSITIVE),
        _activation("logsigmoid", "F.logsigmoid({x})", "nn.LogSigmoid()", needs_unbounded=True, leaves=_POSITIVE),
        _activation("softsign", "F.softsign({x})", "nn.Softsign()", needs_unbounded=True, leaves=_BOUNDED),
        _saturating("sigmoid", "torch.sigmoid({x})", "{x}.sigmoid()", "nn.Sigmoid()", False),
        Operator("tanh", "torch.tanh({x})", "{x}.tanh()", layer="nn.Tanh()", needs_unbounded=True, leaves=_BOUNDED),
        _saturating("hardsigmoid", "F.hardsigmoid({x})", "", "nn.Hardsigmoid()", False, **_SIGNED),
        _saturating("relu6", "F.relu6({x})", "", "nn.ReLU6()", False, **_SIGNED),
        _saturating(
            "clamp",
            "torch.clamp({x}, -{a}, {a})",
            "{x}.clamp(-{a}, {a})",
            "nn.Hardtanh(-{a}, {a})",
            True,
            literals={"a": ("0.5", "1.0", "2.0")},
            **_SIGNED,
        ),
        _saturating("sin", "torch.sin({x})", "{x}.sin()", "", True),
        _saturating("cos", "torch.cos({x})", "{x}.cos()", "", True),
        Operator("abs", "torch.abs({x})", "{x}.abs()", leaves=_POSITIVE, sizes=_ALL[1:], **_SIGNED),
        Operator("square", "torch.square({x})", "{x}.square()", leaves=_POSITIVE, sizes=_ALL),
        Operator("scale", "{x} * {a}", "torch.mul({x}, {a})", literals={"a": ("0.1", "0.5", "1.5", "2.0")}, sizes=_ALL),
        Operator("shift", "{x} + {a}", "torch.add({x}, {a})", literals={"a": ("0.1", "0.5", "1.0")}, sizes=_ALL[1:]),
        Operator("add_input", "{x} + {y}", "torch.add({x}, {y})", second="same", sizes=_ALL[1:], leaves=_MIXED),
        Operator("mul_input", "{x} * {y}", "torch.mul({x}, {y})", second="same", sizes=_ALL, leaves=_MIXED),
        Operator(
            "bias",
            "{x} + self.{bias}",
            parameters={"bias": "nn.Parameter(torch.randn({n}))"},
            sizes=_ALL[1:],
            leaves=_MIXED,
        ),
        Operator(
            "gain",
            "{x} * self.{gain}",
            parameters={"gain": "nn.Parameter(torch.randn({n}))"},
            sizes=_ALL,
            leaves=_MIXED,
        ),
    )
}

COLUMN_STAGES = ("bias", "gain")
"""Stages with one parameter per column."""
INPUT_STAGES = ("add_input", "mul_input")
"""Stages with a second input of the same shape."""
UNARY_STAGES = tuple(name for name in STAGES if name not in COLUMN_STAGES + INPUT_STAGES)
