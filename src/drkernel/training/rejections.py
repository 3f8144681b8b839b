"""What the console says of a step of which filters left little or nothing to train on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drkernel.config import Config
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS
from drkernel.training.update import has_learnt

SHOWN_BELOW = 0.5
"""The line of a step shows the share of tokens that train where it is smaller than this."""
IN_A_ROW = 3
"""So many steps in a row without an update are a warning."""


def made_no_update(metrics: Mapping[str, float]) -> bool:
    """Whether no token of a step trained, or no gradient of it was finite."""
    return not metrics.get("kept", 1.0) > 0 or not has_learnt(metrics)


def kept(metrics: Mapping[str, float]) -> str:
    """The share of tokens that train, where it is small; else nothing.

    >>> kept({"kept": 0.12}), kept({"kept": 0.9})
    ('  kept 12 %', '')
    """
    share = metrics.get("kept", 1.0)
    return f"  kept {100 * share:.0f} %" if share < SHOWN_BELOW else ""


def lines(config: Config, step: int, metrics: Mapping[str, float], in_a_row: int) -> list[str]:
    """For the user, where a step made no update: which filter rejected what, with the options that say so.

    in_a_row: how many steps in a row made no update, this one included.
    """
    if not made_no_update(metrics):
        return []
    on = config.filters.chosen(GROUP_FILTERS | TURN_FILTERS | TOKEN_FILTERS)
    shares = {name: metrics[key] for name in on if (key := f"{name}/kept") in metrics}
    guilty = [name for name in shares if not shares[name] > 0] or [name for name in shares if shares[name] < 1]
    said = [f"{name} keeps {100 * shares[name]:.0f} % ({_options(name, on[name])})" for name in guilty]
    why = "; ".join(said) or "no filter is the cause"
    if metrics.get("kept", 0.0) > 0:
        why = f"the gradient is not finite, {100 * metrics['kept']:.0f} % of the tokens were to train"
    found = [f"step {step} made no update: {why}"]
    if in_a_row >= IN_A_ROW:
        advice = "the policy does not change; loosen the filter that is named, or filters=none shows what is left"
        found.append(f"warning: {in_a_row} steps in a row made no update: {advice}")
    return found


def _options(name: str, options: Mapping[str, Any]) -> str:
    """The options of a filter as one types them."""
    return ", ".join(f"filters.{name}.{key}={value}" for key, value in options.items() if value is not None)
