"""A group of ranks with one engine takes the same steps, whoever plays, and ends when its first rank ends."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from drkernel.config import Config
from drkernel.policy import Request, load_engine, load_prompts, new_policy
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.rollout import Stopped
from drkernel.training import build
from drkernel.training.group_engine import GroupEngine, expect_groups, ranks_of_group
from drkernel.training.ranks import Ranks
from drkernel.training.sharded_rollout import play
from drkernel.types import DrKernelError
from tests.rollout.test_episodes import SOURCE, TASKS, SlowJudge, content
from tests.training import gloo

pytestmark = pytest.mark.xdist_group("group_engine")


class SlicedEngine:
    """Another engine as if its ranks held slices: a step is a collective of the group, which fails where the ranks do
    not have the same requests. Some ranks may sample something else."""

    def __init__(self, engine, group: Ranks, spoilt: bool = False):
        self._engine, self._group, self._spoilt, self.added = engine, group, spoilt, []

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def add(self, request):
        self.added.append(request.id)
        self._engine.add(request)

    def step(self):
        assert len(set(self._group.all_gather_object(lambda: tuple(self.added)))) == 1, "other requests"
        completed = self._engine.step()
        change = lambda c: dataclasses.replace(c, token_ids=[*c.token_ids, 7])
        return [change(c) for c in completed] if self._spoilt else completed


def trainer_of(engine, prompts, ranks: Ranks, should_stop=lambda: False):
    config = Config()
    config.engine.max_answer_tokens, config.judge.feedback_tokens, config.judge.workers = 30, 24, 1
    config.judge.device = "simulated"
    progress = SimpleNamespace(rollout=lambda title: None)
    judge = SlowJudge(ranks.rank)
    parts = {"config": config, "engine": engine, "judge": judge, "prompts": prompts, "progress": progress}
    return SimpleNamespace(**parts, ranks=ranks, should_stop=should_stop)


def played(trainer) -> list[dict]:
    return content(play(trainer, TASKS, 4, 3, first_group=0, seed=7, title="")[0])


def work(ranks: Ranks, folder) -> dict:
    torch.set_num_threads(1)
    prompts = load_prompts("compact", train_tokenizer([SOURCE.format(i) for i in range(3)] + ["differs at wrong"], 320))
    policy = new_policy(len(prompts.tokenizer), hidden=64, layers=2, seed=4)
    make = lambda: load_engine("transformers", policy, prompts.stop_ids, 16, 512)
    if ranks.size == 1:
        return {"played": played(trainer_of(make(), prompts, ranks))}
    group = ranks_of_group(ranks, 2)
    sliced = SlicedEngine(make(), group)
    engine = GroupEngine(sliced, group)
    found = {"group": (group.rank, group.size), "played": played(trainer_of(engine, prompts, ranks))}
    found["added"], found["busy"] = list(sliced.added), engine.busy

    for_all = Request("for all", [5, 6, 7], 4, 1)  # as check_agreement does
    engine.add(for_all)
    while engine.busy:
        found["by all"] = [c.token_ids for c in engine.step()] or found.get("by all")
    stopped = trainer_of(GroupEngine(SlicedEngine(make(), group), group), prompts, ranks, lambda: ranks.rank == 0)
    with pytest.raises(Stopped):
        played(stopped)
    found["broken"] = said(SlicedEngine(make(), group), group, broken=True)
    found["spoilt"] = said(SlicedEngine(make(), group, spoilt=not group.is_main), group)
    found["alike"] = said(SlicedEngine(make(), group), group)
    return found


def said(sliced: SlicedEngine, group: Ranks, broken: bool = False) -> str:
    """What comes of it that the group's first rank asks for a completion and then perhaps fails."""
    engine = GroupEngine(sliced, group)

    def ask(shard):
        with pytest.raises(DrKernelError, match="expected 1 to 511"):
            engine.add(Request("too long", [2] * 512, 4, 1))
        engine.add(Request("a", [2, 3], 4, 1))
        while engine.busy:
            engine.step()
        if broken:
            raise RuntimeError("the judge has ended")
        return f"led {shard}"

    try:
        return str(engine.lead_or_follow(ask))
    except (DrKernelError, RuntimeError) as error:
        return str(error)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gloo.results(__name__, tmp_path_factory.mktemp("groups"), sizes=(1, 2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_groups_play_what_one_rank_plays(found, size):
    for rank in found[size]:
        assert rank["played"] == found[1][0]["played"] and not rank["busy"]
    assert [rank["group"] for rank in found[size]] == [(number % 2, 2) for number in range(size)]
    shards = [rank["added"] for rank in found[size]]
    assert shards[0::2] == shards[1::2]
    assert size == 2 or not set(shards[0]) & set(shards[2])


@pytest.mark.slow
def test_outside_of_rollouts_every_rank_asks_for_itself(found):
    assert len({str(rank["by all"]) for rank in found[4]}) == 1 and found[4][0]["by all"]


@pytest.mark.slow
def test_the_others_end_when_the_first_rank_ends_also_with_an_error(found):
    for size in (2, 4):
        for number, rank in enumerate(found[size]):
            assert rank["broken"] == ("None" if number % 2 else "the judge has ended")
            assert rank["alike"] == ("None" if number % 2 else f"led ({number // 2}, {size // 2})")


@pytest.mark.slow
def test_a_rank_that_samples_other_tokens_is_an_error(found):
    for number, rank in enumerate(found[4]):
        expected = f"rank {number} sampled other tokens than the first rank of its group" if number % 2 else "led"
        assert expected in rank["spoilt"]


def test_ranks_that_groups_do_not_divide_are_refused():
    expect_groups(Ranks(local_size=8, size=8), 4)
    with pytest.raises(DrKernelError, match=r"engine\.tensor_parallel=4 with 6 ranks on a node; expected a number"):
        expect_groups(Ranks(local_size=6, size=12), 4)


def test_transformers_generates_on_each_rank_alone():
    with pytest.raises(DrKernelError, match=r"tensor_parallel=2, which engine\.name=transformers does not have"):
        load_engine("transformers", None, {1}, tensor_parallel=2)


def test_a_study_takes_an_engine_of_one_rank(monkeypatch):
    asked = {}
    monkeypatch.setattr(build, "load_engine", lambda **options: asked.update(options))
    config = Config()
    config.engine.tensor_parallel = 4
    build.make_engine(config, None, SimpleNamespace(stop_ids=set()))
    assert asked["tensor_parallel"] == 1
