"""Which of a submission's kernels its outputs depend on: launches are left out, and the outputs compared.

A kernel without effect at the published shape is no hack. A tail kernel has nothing to do where the shape divides
evenly, and a bias may lie within the tolerance. But what it does there is no work, so its time does not count as the
submission's own (`attribution.attribute`). Only a kernel without effect at every shape is called useless, and that is
said and not refused. See judge/PROPERTIES.md, P9.
"""

from __future__ import annotations

from typing import Any

from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.paired_models import PairedModels


def without_effect(pair: PairedModels, sites: tuple[str, ...], at_published: list[Case]) -> tuple[str, ...]:
    """The kernels that can all be left out together while the outputs at the published shape stay right.

    One kernel more is left out at a time, so of two kernels that do the same work one counts as doing it. Several
    cases are tried in turn, because a buffer that is kept between calls may still hold the right outputs of the last
    one, and because a kernel (a clamp) may have nothing to do in some of them.

    Args:
        sites: of all Triton kernels that ran, the one with most programs first: of two that do the same work it is the
            one that may go. Without all of them the outputs are wrong.
    """
    left_out: tuple[str, ...] = ()
    for site in sites if len(sites) > 1 else ():
        if not pair.depend_on((*left_out, site), at_published):
            left_out += (site,)
    return left_out


def decide(pair: PairedModels, sites: tuple[str, ...], case: Case) -> bool:
    """Whether the outputs depend on these launches, and are more than what PyTorch computes without them."""
    if not sites or not pair.depend_on(sites, [case]):
        return False
    return case.large or not case.is_among(pair.computed_by_aten(case, sites))


def evidence(
    pair: PairedModels, sites: tuple[str, ...], without_effect: tuple[str, ...], at_hidden_shapes: list[Case]
) -> dict[str, Any]:
    """What a verdict says of kernels without effect at the published shape; other shapes tell which are useless, and
    none is where there are no others."""
    useless = [site for site in without_effect if at_hidden_shapes and not pair.depend_on((site,), at_hidden_shapes)]
    return {
        "kernels_that_matter": round(1 - len(without_effect) / len(sites), 4),
        "without_effect": list(without_effect),
        "useless": useless,
    }


def about(evidence: dict[str, Any]) -> str:
    """For the policy: which kernels it may leave away. Empty where it may leave away none."""
    useless = evidence.get("useless")
    return f"no output depends on {', '.join(useless)}; that time is not counted as your kernels'" if useless else ""
