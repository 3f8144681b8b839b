"""A step that filters leave nothing of says so, with the filter and the range that rejected."""

import re
from types import SimpleNamespace

import pytest

from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS
from drkernel.training.metric_names import METRICS
from drkernel.training.trainer import State, log
from tests.configs import train_config as load

SHOWN = dict.fromkeys(("reward", "correct", "fast@1.2", "hack", "lazy"), 0.5)
NOTHING = SHOWN | {"kept": 0.0, "skipped": 1, "mrs/kept": 0.0, "prs/kept": 0.8, "zero_variance/kept": 1.0}


def said(config, *steps: dict) -> list[str]:
    """The console of a run with these metrics."""
    lines: list[str] = []
    progress = SimpleNamespace(log=lines.append)
    trainer = SimpleNamespace(config=config, state=State(), progress=progress, run=None)
    for metrics in steps:
        trainer.state.step += 1
        log(trainer, metrics)
    return lines


def test_a_step_that_filters_leave_nothing_of_names_the_filter_and_its_range():
    first, why = said(load("filters=full"), NOTHING)
    assert first.startswith("step 1/16  reward 0.50") and "kept 0 %" in first
    assert why.startswith("step 1 made no update: mrs keeps 0 % (filters.mrs.level=geometric, filters.mrs.lower=0.999")
    assert "filters.mrs.upper=1.001" in why and "prs" not in why


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (SHOWN | {"kept": 0.0, "skipped": 1}, "no filter is the cause"),
        (SHOWN | {"kept": 0.9, "skipped": 1}, "the gradient is not finite, 90 % of the tokens were to train"),
        (NOTHING | {"mrs/kept": 0.1}, r"prs keeps 80 % .*filters\.prs\.tau=0\.55.*; mrs keeps 10 % "),
    ],
)
def test_a_step_that_no_filter_rejects_alone_says_what_there_is_to_say(metrics, words):
    assert re.search(words, said(load("filters=full"), metrics)[1])


def test_three_in_a_row_are_a_warning_and_one_that_trains_begins_anew():
    good = SHOWN | {"kept": 1.0, "skipped": 0}
    lines = said(load("filters=full"), NOTHING, NOTHING, good, NOTHING, NOTHING, NOTHING, NOTHING)
    warnings = [line for line in lines if line.startswith("warning")]
    assert [line.split(" steps")[0] for line in warnings] == ["warning: 3", "warning: 4"]


def test_a_step_of_several_updates_of_which_one_was_skipped_has_trained():
    part = SHOWN | {"kept": 1.0, "skipped": 1, "updates": 4}
    lines = said(load("algo.updates=4"), part, part, part)
    assert len(lines) == 3 and not any("made no update" in line for line in lines)
    assert "made no update" in said(load("algo.updates=4"), part | {"skipped": 4})[1]


def test_a_step_that_trains_on_most_of_its_tokens_has_the_line_that_it_always_had():
    assert said(load(), SHOWN | {"kept": 0.97, "skipped": 0}) == [
        "step 1/16  reward 0.50  correct 0.50  fast@1.2 0.50  hack 0.50  lazy 0.50  (0 s)"
    ]


@pytest.mark.parametrize("name", [*GROUP_FILTERS, *TURN_FILTERS, *TOKEN_FILTERS])
def test_a_step_logs_what_share_each_filter_keeps(name):
    assert f"{name}/kept" in METRICS
