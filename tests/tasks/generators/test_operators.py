"""Each registered operator has everything, its spellings agree, and an incomplete entry says what it lacks."""

import random
from dataclasses import replace

import pytest
import torch

from drkernel.tasks.generators.operators import CORES, OPERATORS, STAGES
from drkernel.tasks.generators.operators.families import FAMILIES
from drkernel.tasks.generators.operators.layouts import LAYOUTS
from drkernel.tasks.generators.operators.operator import register
from drkernel.tasks.generators.operators.writer import describe, write
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

SPELLINGS = ("functional", "method", "manual", "layer")


def family_of(name: str) -> str:
    """A family that draws the operator."""
    for family, chosen in FAMILIES.items():
        if name in (*chosen.cores, chosen.lead, *chosen.first) or (not chosen.cores and name in chosen.post):
            return family
    raise AssertionError(f"no family draws the operator {name!r}")


def output(name: str, spelling: str) -> torch.Tensor:
    """The operator's output at a small size, written in one of its spellings with its first literals."""
    operator, family = OPERATORS[name], family_of(name)
    first = {key: values[0] for key, values in operator.literals.items()}
    for seed in range(1000):
        layout = operator.layout or FAMILIES[family].layouts[0]
        info = describe(family, (name,), layout, random.Random(seed))
        if info["style"]["spelling"][name] == spelling and info["literals"].get(name, {}) == first:
            sizes = {key: 6 + 2 * i for i, key in enumerate(info["small"])}
            reference = Reference(Task(name, write(info)), sizes)
            return reference.forward(reference.model(0), reference.inputs(0))
    raise AssertionError(f"the generator never spells {name!r} as {spelling}")


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_drawn_by_a_family_and_its_layout_exists(name):
    family = FAMILIES[family_of(name)]
    assert not OPERATORS[name].layout or OPERATORS[name].layout in family.layouts
    assert set(family.layouts) <= set(LAYOUTS)


def test_families_name_registered_operators_in_their_places():
    for family in FAMILIES.values():
        assert {*family.cores, *filter(None, [family.lead])} <= set(CORES)
        assert {*family.pre, *family.post, *family.first} <= set(STAGES)


def test_superfluous_operators_are_registered():
    assert {other for op in OPERATORS.values() for other in op.makes_superfluous} <= set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_all_spellings_of_an_operator_agree(name):
    spellings = [spelling for spelling in SPELLINGS if getattr(OPERATORS[name], spelling)]
    outputs = [output(name, spelling) for spelling in spellings]
    assert torch.isfinite(outputs[0]).all()
    for spelling, other in zip(spellings[1:], outputs[1:], strict=True):
        torch.testing.assert_close(other, outputs[0], msg=f"{name} as {spelling}")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("relu", {"functional": "", "layer": ""}, "operator 'relu': `functional` is missing"),
        ("relu", {"triton": ()}, "operator 'relu': `triton` is missing"),
        ("relu", {"sizes": ("huge",)}, r"operator 'relu': `sizes` is \('huge',\)"),
        ("relu", {"leaves": {"sign": True}}, "operator 'relu': `leaves` sets 'sign'"),
        ("leaky_relu", {"literals": {}}, "operator 'leaky_relu': `functional` uses the placeholder 'a'"),
        ("clamp", {"triton": ("v = v + {b}",)}, "operator 'clamp': `triton` uses the placeholder 'b'"),
        ("softmax", {"template": "rows"}, "operator 'softmax': unknown template 'rows'"),
        ("layer_norm", {"attributes": ()}, "operator 'layer_norm': `attributes` is missing"),
        ("bias", {"parameters": {"start": ""}}, "operator 'bias': parameter 'start' has no entry in PARAMETER_NAMES"),
        ("avg_pool1d", {"fold": ""}, "operator 'avg_pool1d': `fold` is ''"),
        ("transpose", {"triton": ("v = v",)}, "operator 'transpose': `triton` must be empty"),
    ],
)
def test_an_incomplete_entry_is_an_error_that_names_what_is_missing(name, change, message):
    with pytest.raises(DrKernelError, match=message):
        register((replace(OPERATORS[name], **change),))


def test_a_name_is_registered_once():
    with pytest.raises(DrKernelError, match="operator 'relu' is registered twice"):
        register((OPERATORS["relu"],), (OPERATORS["relu"],))
