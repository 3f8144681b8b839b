"""Filters: which turns train, and which of the others still count in the baseline of their group.

There are three kinds, one registry each. A filter is on where `filters.<name>` is set; its keyword-only parameters are
the keys below that.

    GROUP_FILTERS   (rollouts) -> Decision             whole groups, right after the rollout; dropped ones are refilled
    TURN_FILTERS    (rollouts, uniforms) -> Decision   single turns, before advantages
    TOKEN_FILTERS   (log-probabilities, ...) -> mask, metrics   single tokens, after packing (`mismatch.py`)

`uniforms`, float [B, T] in [0, 1), is all the randomness that a turn filter may use; the caller draws it.

A filter sees the rollouts as they are, never what another filter left of them, so their order does not matter. In the
published code every rejected turn stays in the baseline. Here each filter says what its rejected turns do. With `mrs`
they stay: their returns are as good as any, and only their log-probabilities are in doubt. With `zero_variance` the
question does not arise, since whole groups go. With `prs` and `overlong` they leave; their docstrings say why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from drkernel.objective.metric_sums import MetricSums, mean_of
from drkernel.objective.mismatch import rollout_correction
from drkernel.objective.rollouts import Rollouts, last_turn
from drkernel.objective.segments import segment_sum
from drkernel.types import DrKernelError

COMPARED_TURNS = ("last", "any")
"""The values of `filters.zero_variance.turns`."""
PRS_MODES = ("turn", "geometric")
"""The values of `filters.prs.mode`."""


@dataclass(frozen=True)
class Decision:
    """What a filter says of B trajectories of T turns."""

    keep: Tensor  # bool [B, T], turns that train
    in_baseline: Tensor  # bool [B, T], turns that count in the baseline of their group
    metrics: MetricSums = field(default_factory=dict)
    rejected: dict[str, Tensor] = field(default_factory=dict)  # bool [B, T] by filter, the turns that it rejects

    def __and__(self, other: Decision) -> Decision:
        """A turn trains, or counts in the baseline, if both say so."""
        keep, in_baseline = self.keep & other.keep, self.in_baseline & other.in_baseline
        return Decision(keep, in_baseline, self.metrics | other.metrics, self.rejected | other.rejected)


def keep_all(rollouts: Rollouts) -> Decision:
    """Every turn trains, and counts in its baseline.

    >>> from dataclasses import replace
    >>> keep_all(replace(Rollouts.empty(1, 2), turn_mask=torch.tensor([[True, False]]))).keep.tolist()
    [[True, False]]
    """
    return Decision(rollouts.turn_mask, rollouts.turn_mask)


def keep_groups(rollouts: Rollouts, groups: Collection[int], name: str) -> Decision:
    """The turns of some groups train, the others do not; `name` is that of the metric, `<name>/kept`.

    >>> from dataclasses import replace
    >>> table = replace(Rollouts.empty(2, 1), turn_mask=torch.tensor([[True], [True]]), groups=torch.tensor([3, 5]))
    >>> keep_groups(table, {5}, "example").keep.tolist()
    [[False], [True]]
    """
    survives = torch.tensor([group in groups for group in rollouts.groups.tolist()], dtype=torch.bool)
    keep = rollouts.turn_mask & survives[:, None]
    metrics = {f"{name}/kept": mean_of(survives.double(), rollouts.turn_mask.any(1))}
    return Decision(keep, keep, metrics, {name: rollouts.turn_mask & ~keep})


def zero_variance(rollouts: Rollouts, *, min_std: float = 1e-3, min_size: int = 2, turns: str = "last") -> Decision:
    """Drop groups in which the reward does not tell one trajectory from another; the caller draws others.

    Source: DAPO's dynamic sampling (Yu et al. 2025) with the bounds of the paper's published code.

    min_std    a group survives if the standard deviation of its rewards (of the population) reaches this
    min_size   and if it has this many trajectories; the published code asks for K / 2 + 1 of K
    turns      `last` compares the last turns, as the published code does; `any` lets a group survive if rewards differ
               at some turn, for turn-level advantages can learn from that

    A whole group goes, so what its turns do to a baseline is of no matter.

    >>> from dataclasses import replace
    >>> table = replace(
    ...     Rollouts.empty(4, 2),
    ...     turn_mask=torch.ones(4, 2, dtype=torch.bool),
    ...     rewards=torch.tensor([[0.0, 2.0], [1.0, 2.0], [1.0, 3.0], [1.0, 0.0]]),
    ...     groups=torch.tensor([7, 7, 8, 8]),
    ... )
    >>> decision = zero_variance(table)
    >>> decision.keep.tolist(), surviving_groups(decision, table.groups).tolist()
    ([[False, False], [False, False], [True, True], [True, True]], [8])
    """
    if turns not in COMPARED_TURNS:
        raise DrKernelError(f"zero_variance turns: found {turns!r}, expected one of {', '.join(COMPARED_TURNS)}")
    rewards, judged = rollouts.rewards.double(), rollouts.turn_mask
    if turns == "last":
        rewards, judged = last_turn(rewards, judged)[:, None], judged.any(1, keepdim=True)
    number = segment_sum(judged.double(), rollouts.groups).clamp(min=1)
    mean = segment_sum(rewards * judged, rollouts.groups) / number
    variance = segment_sum((rewards - mean) ** 2 * judged, rollouts.groups) / number
    size = segment_sum(rollouts.turn_mask.any(1).long(), rollouts.groups)
    survives = (variance.sqrt() >= min_std).any(1) & (size >= min_size)
    return keep_groups(rollouts, set(rollouts.groups[survives].tolist()), "zero_variance")


def prs(
    rollouts: Rollouts,
    uniforms: Tensor,
    *,
    mode: str = "turn",
    tau: float = 0.55,
    width: float = 0.1,
    speedup_from: float | None = None,
    rejected_in_baseline: bool = False,
) -> Decision:
    """PRS: keep a correct turn with probability clip((PR - tau) / width, 0, 1). Paper eq. 9 and appendix D.

    uniforms      a turn is kept if its number is below its probability
    mode          `turn` judges each turn by its PR; `geometric` judges all turns of a trajectory by the geometric mean
                  of the PR of the correct ones, and by the number of turn 0
    tau, width    where the ramp begins, and how long it is; width 0 is the hard variant, which keeps PR >= tau
    speedup_from  a turn at least this fast is kept whatever its PR; None switches the rule off
    rejected_in_baseline   True is the published code

    Turns that earn nothing are always kept: the others are compared with them. Departures (docs/method.md): tau is for
    a coverage that is a share of device time (paper: 0.3); rejected turns leave the baseline (`without_singletons`).

    >>> from dataclasses import replace
    >>> table = replace(
    ...     Rollouts.empty(3, 2),
    ...     turn_mask=torch.ones(3, 2, dtype=torch.bool),
    ...     rewarded=torch.tensor([[True, True], [True, True], [False, True]]),
    ...     coverage=torch.tensor([[0.5, 0.7], [0.6, 0.6], [0.0, 0.5]]),
    ... )
    >>> uniforms = torch.tensor([[0.0, 0.9], [0.3, 0.7], [0.9, 0.0]])
    >>> prs(table, uniforms).keep.tolist()
    [[False, True], [True, False], [True, False]]
    """
    if mode not in PRS_MODES:
        raise DrKernelError(f"prs mode: found {mode!r}, expected one of {', '.join(PRS_MODES)}")
    coverage, rewarded = rollouts.coverage, rollouts.rewarded
    if mode == "geometric":
        coverage, uniforms = _geometric_mean(coverage, rewarded), uniforms[:, :1]
    passed = uniforms < ((coverage - tau) / width).clamp(0, 1) if width else coverage >= tau
    if speedup_from is not None:
        passed = passed | (rollouts.speedup >= speedup_from)
    keep = rollouts.turn_mask & (passed | ~rewarded)
    in_baseline = rollouts.turn_mask if rejected_in_baseline else without_singletons(keep, rollouts)
    metrics = {"prs/kept": mean_of(keep.double(), rollouts.turn_mask & rewarded)}
    return Decision(keep, in_baseline, metrics, {"prs": rollouts.turn_mask & ~keep})


def overlong(rollouts: Rollouts, uniforms: Tensor, *, rejected_in_baseline: bool = False) -> Decision:
    """Drop turns whose completion was cut at its token limit, and those before it: what it would have earned is not
    known, so neither are the returns of the turns before. The turns after it train.

    Source: DAPO (Yu et al. 2025), overlong filtering, for single turns. Off in the paper's recipe. Nothing then tells
    the policy not to write long completions; `reward.overlong_penalty` does.

    rejected_in_baseline   True compares the other turns with the dropped ones, too: what was cut earns nothing

    >>> from dataclasses import replace
    >>> mask = torch.ones(3, 1, dtype=torch.bool)
    >>> table = replace(Rollouts.empty(3, 1), turn_mask=mask, finished=torch.tensor([[True], [False], [True]]))
    >>> decision = overlong(table, torch.zeros(3, 1))
    >>> decision.keep.flatten().tolist(), decision.in_baseline.flatten().tolist()
    ([True, False, True], [True, False, True])
    """
    cut = rollouts.turn_mask & ~rollouts.finished
    keep = rollouts.turn_mask & (cut.flip(1).cumsum(1).flip(1) == 0)
    in_baseline = rollouts.turn_mask if rejected_in_baseline else without_singletons(keep, rollouts)
    metrics = {"overlong/kept": mean_of(keep.double(), rollouts.turn_mask)}
    return Decision(keep, in_baseline, metrics, {"overlong": rollouts.turn_mask & ~keep})


def without_singletons(in_baseline: Tensor, rollouts: Rollouts) -> Tensor:
    """The turns that count in a baseline, bool [B, T]. Where a rejection leaves at most one of a group's turns with the
    same index, the rejected ones stay: a turn without a baseline would have its whole return as advantage.

    >>> from dataclasses import replace
    >>> mask = torch.ones(4, 1, dtype=torch.bool)
    >>> table = replace(Rollouts.empty(4, 1), turn_mask=mask, groups=torch.tensor([7, 7, 8, 8]))
    >>> without_singletons(torch.tensor([[True], [False], [True], [True]]), table).flatten().tolist()
    [True, True, True, True]
    >>> without_singletons(torch.tensor([[False], [False], [False], [True]]), table).flatten().tolist()
    [True, True, True, True]
    """
    single = segment_sum(in_baseline.long(), rollouts.groups) <= 1
    return torch.where(single, rollouts.turn_mask, in_baseline)


def _geometric_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Over the turns in `mask`: [B, T], bool [B, T] -> [B, 1], 1 where there is none."""
    logs = torch.where(mask, values, 1.0).log().sum(1, keepdim=True)
    return (logs / mask.sum(1, keepdim=True).clamp(min=1)).exp()


def decide(filters: Mapping[str, Mapping[str, Any]], rollouts: Rollouts, uniforms: Tensor | None = None) -> Decision:
    """What several group and turn filters, name -> options, say together; `{}` keeps all.

    uniforms: as above; group filters need none. Where several turn filters together leave one turn of a
    group, its baseline has the rejected ones, as where one filter does.

    >>> from dataclasses import replace
    >>> mask = torch.ones(3, 1, dtype=torch.bool)
    >>> table = replace(Rollouts.empty(3, 1), turn_mask=mask, rewarded=mask, finished=torch.tensor([[1], [1], [0]]) > 0)
    >>> table = replace(table, coverage=torch.tensor([[0.0], [1.0], [1.0]]))
    >>> decision = decide({"prs": {}, "overlong": {}}, table, torch.zeros(3, 1))
    >>> decision.keep.flatten().tolist(), decision.in_baseline.flatten().tolist(), sorted(decision.rejected)
    ([False, True, False], [True, True, True], ['overlong', 'prs'])
    """
    whole, single = keep_all(rollouts), keep_all(rollouts)
    for name, options in filters.items():
        if name in GROUP_FILTERS:
            whole &= GROUP_FILTERS[name](rollouts, **options)
        elif name in TURN_FILTERS:
            assert uniforms is not None, f"{name} is a turn filter"
            single &= TURN_FILTERS[name](rollouts, uniforms, **options)
        else:
            known = ", ".join([*GROUP_FILTERS, *TURN_FILTERS])
            raise DrKernelError(f"turn filter: found {name!r}, expected one of {known}")
    return whole & replace(single, in_baseline=without_singletons(single.in_baseline, rollouts))


def surviving_groups(decision: Decision, groups: Tensor) -> Tensor:
    """The groups of which at least one turn is kept, sorted: int64 [G]. groups: of the trajectories, int64 [B].

    >>> kept = torch.tensor([[False, True], [False, False], [True, True]])
    >>> surviving_groups(Decision(kept, kept), torch.tensor([8, 7, 8])).tolist()
    [8]
    """
    return groups[decision.keep.any(1)].unique()


GROUP_FILTERS = {"zero_variance": zero_variance}
TURN_FILTERS = {"prs": prs, "overlong": overlong}
TOKEN_FILTERS = {"mrs": rollout_correction}
