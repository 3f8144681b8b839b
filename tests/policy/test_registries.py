"""A new engine or style of prompts is a class and one line in a registry, as CONTRIBUTING.md says."""

from __future__ import annotations

import pytest

from drkernel.config.choices import CHOICES
from drkernel.config.engine import ENGINES
from drkernel.config.policy import PROMPTS
from drkernel.policy import load_engine, load_prompts
from drkernel.policy.prompts import CompactPrompts
from drkernel.types import DrKernelError
from tests.configs import train_config


class Echo:
    """An engine that takes one option of the config and has none of vLLM's."""

    def __init__(self, policy, stop_ids, slots: int):
        self.made_of = policy, stop_ids, slots


class Reversed(CompactPrompts):
    """A style of prompts."""


@pytest.fixture(autouse=True)
def _lines_in_the_registries(monkeypatch):
    monkeypatch.setitem(ENGINES.homes, "echo", f"{__name__}:Echo")
    monkeypatch.setitem(PROMPTS.homes, "reversed", f"{__name__}:Reversed")


def test_a_line_adds_an_engine():
    assert train_config("engine.name=echo").engine.name == "echo"
    made = load_engine("echo", "the policy", {7}, slots=3, context=99, kv_cache_gib=2.0)
    assert isinstance(made, Echo) and made.made_of == ("the policy", {7}, 3)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"may_sleep": True}, r"engine\.sleep: found true, which engine\.name=echo does not have"),
        ({"eager": True}, r"engine\.eager: found true, which engine\.name=echo does not have"),
        ({"tensor_parallel": 2}, r"engine\.tensor_parallel=2, which engine\.name=echo does not have; expected 1"),
    ],
)
def test_what_a_new_engine_does_not_declare_is_refused(option, expected):
    with pytest.raises(DrKernelError, match=expected):
        load_engine("echo", None, set(), **option)


def test_a_line_adds_a_style_of_prompts(tokenizer):
    assert train_config("policy.prompts=reversed").policy.prompts == "reversed"
    assert isinstance(load_prompts("reversed", tokenizer), Reversed)


def test_an_unknown_name_is_answered_with_the_registered_ones():
    with pytest.raises(DrKernelError, match=r"engine\.name='ecko' is none of auto, .*did you mean 'echo'"):
        train_config("engine.name=ecko")


@pytest.mark.parametrize("registry", [ENGINES, PROMPTS], ids=["engines", "prompts"])
def test_every_registered_name_can_be_imported(registry):
    assert all(callable(registry[name]) for name in registry)


def test_the_words_of_the_config_are_the_registries():
    assert (CHOICES["engine.name"], CHOICES["policy.prompts"]) == (ENGINES, PROMPTS)
