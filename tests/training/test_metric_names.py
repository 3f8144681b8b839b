"""One registry says what every metric is; the documents and the steps agree with it."""

import re
from pathlib import Path

import torch

from drkernel.config import RewardConfig
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS, decide
from drkernel.objective.loss import kl_to_reference, policy_loss
from drkernel.objective.rollouts import Rollouts
from drkernel.training.metric_names import METRICS, is_known, table
from drkernel.training.rollout_metrics import describe_all, describe_groups
from tests.training.test_rollout_metrics import EVERY

ROOT = Path(__file__).parents[2]


def logged() -> set[str]:
    """What filters, loss and rollouts log, with everything that is optional."""
    config = RewardConfig(overlong_penalty=1.0, overlong_window=2, overlong_limit=4)
    names = {*describe_all(config, EVERY), *describe_groups(config, EVERY, {0}, 0)}
    whole = {name: {} for name in (*GROUP_FILTERS, *TURN_FILTERS)}
    names |= decide(whole, Rollouts.empty(2, 1), torch.zeros(2, 1)).metrics.keys()
    values, ids = torch.zeros(2), torch.zeros(2, dtype=torch.long)
    for accept in TOKEN_FILTERS.values():
        names |= accept(values, values, ids, ids, ids == 0)[1].keys()
    return names | policy_loss(*[values] * 4)[1].keys() | kl_to_reference(*[values] * 3)[1].keys()


def test_the_table_of_the_method_is_the_registry():
    assert table() in (ROOT / "docs/method.md").read_text(), f"docs/method.md should have\n\n{table()}"


def test_what_a_step_logs_is_in_the_registry():
    assert {name for name in logged() if not is_known(name)} == set()
    assert {f"{name}/kept" for name in (*GROUP_FILTERS, *TURN_FILTERS, *TOKEN_FILTERS)} <= METRICS.keys()


def test_the_registry_has_no_metric_that_nothing_logs():
    sources = [ROOT / "train.py", *(ROOT / "src/drkernel").glob("training/*.py")]
    written = {
        name
        for path in sources
        if path.stem != "metric_names"
        for name in re.findall(r'"([\w/@.]+)"', path.read_text())
    }
    assert {name for name in METRICS if "*" not in name} - logged() - written == set()
