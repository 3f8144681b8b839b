"""What an operator of the generator is: its spellings in PyTorch, its lines in Triton, and what it does to values.

One entry holds everything that the project knows of an operator. Its text is a template: `{x}` is what came before,
`{y}` the second input; literals, weights and constructor arguments have placeholders of their own.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from drkernel.types import DrKernelError

ALL_SIZES = ("small", "unit", "large")
PARAMETER_NAMES = {
    "bias": ("bias", "b"),
    "gain": ("gain", "alpha"),
    "weight": ("weight", "gamma"),
    "offset": ("offset", "beta"),
}
"""What a reference may call a parameter that it makes itself, by placeholder."""
ARGUMENTS = ("k", "g", "v", "n")
"""Placeholders of constructor arguments: inner dimension, groups, vocabulary, columns."""

Template = Literal[
    "elementwise",
    "row",
    "grouped_row",
    "row_reduction",
    "row_loss",
    "column_reduction",
    "gate",
    "lookup",
    "pool",
    "transpose",
    "product",
]
"""The kernel that cold-start solutions compute an operator with: `coldstart.kernels.TEMPLATES` has the functions."""
_WITHOUT_LINES = ("column_reduction", "lookup", "pool", "transpose", "product")
"""Templates that are complete without lines of the operator."""
_FOLDING = ("column_reduction", "pool")


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
    """One operator of a composition. Operators with the `elementwise` template are stages, all others are cores."""

    name: str
    functional: str
    """The call in `torch` or `torch.nn.functional`; empty only where `layer` has the weights."""
    method: str = ""
    """Another spelling without state, e.g. a tensor method."""
    manual: str = ""
    """A spelling that repeats `{x}`, for bodies where `{x}` is a variable."""
    layer: str = ""
    """The constructor of an nn.Module that does it."""
    attributes: tuple[str, ...] = ()
    """What a reference may call that module, where it has weights."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Placeholder of each weight, and the constructor that `functional` needs; empty text with `layer` alone."""
    literals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Placeholder of each literal and the spellings it may take."""
    second: str = ""
    """The second input as a template over sizes; `same` means a random tensor of the shape at this place."""
    prepare: str = ""
    """A statement that must precede it."""
    layout: str = ""
    """The only one of its family's layouts that it works on; empty: any of them."""

    template: Template = "elementwise"
    triton: tuple[str, ...] = ()
    """Lines that turn `v` into `v`, whatever the neighbours of the operator are (`gate`: the activation alone).

    Defined around them: `i` (the element's index in memory), `m` (the mask) and, where there are columns, `c` (the
    column) and `n` (their number). Formulas keep their relative precision near zero and in the tails, where the judge
    looks and `exp(v) - 1` would not do.
    """
    fold: str = ""
    """What a loop over elements accumulates: sum, mean, max or min (templates column_reduction and pool)."""

    needs_signed: bool = False
    needs_unbounded: bool = False
    sizes: tuple[str, ...] = ALL_SIZES
    """The sizes of values on which it is neither an identity nor a constant."""
    leaves: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `State` that it sets."""
    accumulates: bool = False
    """It adds up: of values that other operators made, it leaves large ones of one sign."""
    makes_superfluous: tuple[str, ...] = ()
    """Operators that have no effect right before this one."""

    padding_matters: bool = False
    """Lanes beyond the row change the result unless they are masked."""
    grows: bool = False
    """Large values stay large."""
    not_in_triton: bool = False
    """`tl.<name>(v)` looks plausible and does not work."""
    since: int = 1
    """The edition of the generator `operators` that it came with. Its other fields stay as they are:
    what is drawn depends on how many spellings and literals there are."""

    @property
    def is_stage(self) -> bool:
        """Whether it is element-wise, so that any number of them can follow one another in one kernel."""
        return self.template == "elementwise"

    def accepts(self, state: State) -> bool:
        """Whether it does something, and does not destroy everything, on such values."""
        return (
            (state.signed or not self.needs_signed)
            and not (state.bounded and self.needs_unbounded)
            and state.size in self.sizes
        )

    def after(self, state: State, opens: bool) -> State:
        """The state behind the operator. `opens`: it is the first of its composition and reads random input."""
        if self.accumulates and not opens:
            return State(signed=False, size="large")
        return replace(state, **self.leaves)


def register(*groups: tuple[Operator, ...]) -> dict[str, Operator]:
    """Operators by name, in order.

    Raises:
        DrKernelError: naming an operator and what it lacks, or a name that occurs twice.
    """
    registry: dict[str, Operator] = {}
    for operator in (operator for group in groups for operator in group):
        if operator.name in registry:
            raise DrKernelError(f"operator {operator.name!r} is registered twice")
        if problem := next(_problems(operator), None):
            raise DrKernelError(f"operator {operator.name!r}: {problem}")
        registry[operator.name] = operator
    return registry


def _problems(op: Operator) -> Iterator[str]:
    """What the entry lacks, one sentence each."""
    if not op.functional and not (op.layer and op.parameters):
        yield "`functional` is missing; it may be empty only where `layer` has `parameters`"
    if op.layer and op.parameters and not op.attributes:
        yield "`attributes` is missing: what a reference may call a `layer` with `parameters`"
    if op.functional and (unknown := sorted(op.parameters.keys() - PARAMETER_NAMES.keys())):
        yield f"parameter {unknown[0]!r} has no entry in PARAMETER_NAMES"
    if op.template not in get_args(Template):
        yield f"unknown template {op.template!r}; expected one of {', '.join(get_args(Template))}"
    if op.template in _WITHOUT_LINES and op.triton:
        yield f"`triton` must be empty: the template {op.template!r} takes no lines"
    if op.template not in _WITHOUT_LINES and not op.triton:
        yield f"`triton` is missing: the template {op.template!r} needs the operator's lines"
    if (op.template in _FOLDING) != (op.fold in ("sum", "mean", "max", "min")):
        yield f"`fold` is {op.fold!r}; sum, mean, max or min belong to the templates {', '.join(_FOLDING)} alone"
    if not op.sizes or set(op.sizes) - set(ALL_SIZES):
        yield f"`sizes` is {op.sizes}; expected some of {', '.join(ALL_SIZES)}"
    if unknown := sorted(op.leaves.keys() - {known.name for known in fields(State)}):
        yield f"`leaves` sets {unknown[0]!r}, which State does not have"
    torch_names = {"x", "y", *op.literals, *op.parameters, *ARGUMENTS}
    texts = {kind: (getattr(op, kind), torch_names) for kind in ("functional", "method", "manual", "layer", "prepare")}
    texts["triton"] = ("\n".join(op.triton), set(op.literals))
    for kind, (text, known) in texts.items():
        used = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        if unknown := sorted(used - known):
            yield f"`{kind}` uses the placeholder {unknown[0]!r}, which is no literal, parameter or argument of it"
