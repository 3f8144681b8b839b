"""Episodes stream: nothing waits for another trajectory's verdict, and no result depends on how long verdicts take."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, fields

import pytest
import torch

from drkernel.policy import Sampling, load_engine, load_prompts, new_policy
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.rollout import Ahead, EpisodeConfig, Stopped, rollout
from drkernel.training.packing import pack
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost

SOURCE = "class Model(nn.Module):\n    def forward(self, x):\n        return x * {}\n"
TASKS = [Task(f"t{i}", SOURCE.format(i)) for i in range(3)]


class SlowJudge:
    """Judges by a digest of the source after a random delay, several at a time. A stand-in for the real judge's timing
    only: its verdicts, like the judge's, depend on the task and the source alone."""

    def __init__(self, seed: int, longest: float = 0.05):
        self.random, self.longest = random.Random(seed), longest
        self.pool = ThreadPoolExecutor(4)
        self.sources: list[str] = []

    def submit(self, task: Task, source: str) -> Future:
        self.sources.append(source)
        return self.pool.submit(self._judge, task, source, self.random.random() * self.longest)

    def _judge(self, task: Task, source: str, delay: float) -> Verdict:
        time.sleep(delay)
        number = sum(source.encode()) % 97
        return Verdict("incorrect", "wrong_values", f"{task.id}: differs at [{number}]", seconds=delay)


@pytest.fixture(scope="module")
def prompts():
    return load_prompts("compact", train_tokenizer([task.source for task in TASKS] + ["differs at wrong values"], 320))


@pytest.fixture(scope="module")
def policy(prompts):
    return new_policy(len(prompts.tokenizer), hidden=64, layers=2, seed=4)


EPISODE = {field.name for field in fields(EpisodeConfig)}


def timed(prompts, policy, judge, slots=16, context=512, samples=4, **options):
    engine = load_engine("transformers", policy, prompts.stop_ids, slots, context)
    options = {"turns": 3, "max_tokens": 30, "feedback_limit": 24, "seed": 7, **options}
    config = EpisodeConfig(**{name: options.pop(name) for name in EPISODE & options.keys()})
    trajectories, times = rollout(engine, judge, prompts, TASKS, samples, config, **options)
    assert not engine.busy and not engine._kept
    return trajectories, times


def play(prompts, policy, judge, **options):
    return timed(prompts, policy, judge, **options)[0]


def content(trajectories) -> list[dict]:
    """All of the trajectories but the wall time of judging."""
    plain = [asdict(t) for t in trajectories]
    for trajectory in plain:
        for turn in trajectory["turns"]:
            del turn["verdict"]["seconds"]
    return plain


def tokens(trajectories) -> list[list[list[int]]]:
    return [[ids for turn in t.turns for ids in (turn.prompt_ids, turn.response_ids)] for t in trajectories]


def logprobs(trajectories) -> list[list[float]]:
    return [[value for turn in t.turns for value in turn.logprobs] for t in trajectories]


@pytest.mark.slow
def test_first_turns_of_a_later_rollout_are_those_that_it_would_generate(prompts, policy, played):
    later = [Task(f"later{i}", SOURCE.format(7 + i)) for i in range(2)]
    judge, ahead = SlowJudge(3), Ahead(later, first_group=3)
    now = play(prompts, policy, judge, ahead=ahead)
    assert content(now) == content(played), "this rollout is as it would be without"
    assert sorted(ahead.completions) == [(group, sample) for group in (3, 4) for sample in range(4)]
    engine = load_engine("transformers", policy, prompts.stop_ids, 16, 512)
    config = EpisodeConfig(turns=3, max_tokens=30, feedback_limit=24)
    alone, _ = rollout(engine, SlowJudge(5), prompts, later, 4, config, seed=7, first_group=3)
    firsts = {(t.group, t.sample): (t.turns[0].response_ids, t.turns[0].logprobs) for t in alone}
    assert {place: (c.token_ids, c.logprobs) for place, c in ahead.completions.items()} == firsts
    taken_up, _ = rollout(
        engine, SlowJudge(6), prompts, later, 4, config, seed=7, first_group=3, begun=ahead.completions
    )
    assert tokens(taken_up) == tokens(alone) and not engine.busy and not engine._kept
    for one, other in zip(logprobs(taken_up), logprobs(alone), strict=True):  # whole sequences are read, not their ends
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=0, atol=1e-4)
    sources = {source for t in alone if (source := t.turns[0].source) is not None}
    assert sources <= set(judge.sources), "the judge has them early"


@pytest.mark.slow
def test_first_turns_ahead_are_divided_among_ranks_as_the_rollout_that_takes_them_up(prompts, policy):
    parts = [Ahead(TASKS, first_group=3) for _ in range(3)]
    for number, ahead in enumerate(parts):
        play(prompts, policy, SlowJudge(number, 0.0), shard=(number, 3), ahead=ahead)
    whole = Ahead(TASKS, first_group=3)
    play(prompts, policy, SlowJudge(9, 0.0), ahead=whole)
    assert sum(len(ahead.completions) for ahead in parts) == len(whole.completions)
    assert {k: v for ahead in parts for k, v in ahead.completions.items()} == whole.completions


@pytest.fixture(scope="module")
def played(prompts, policy):
    return play(prompts, policy, SlowJudge(0, longest=0.0))


def test_order_and_shape_of_the_result(played):
    assert [(t.task_id, t.group, t.sample) for t in played] == [(f"t{i}", i, s) for i in range(3) for s in range(4)]
    assert all(len(t.turns) == 3 and all(turn.verdict for turn in t.turns) for t in played)


@pytest.mark.slow
def test_judging_times_and_slots_change_nothing(prompts, policy, played):
    for seed in (1, 2):
        assert content(play(prompts, policy, SlowJudge(seed))) == content(played)
    assert content(play(prompts, policy, SlowJudge(3), slots=5)) == content(played)


def test_it_says_what_it_generated_and_what_it_waited_for(prompts, policy):
    started = time.perf_counter()
    _, times = timed(prompts, policy, SlowJudge(0, longest=0.4), turns=1)
    assert times.generating > 0 and times.waiting > 0.1  # the last completion's verdict at least
    assert times.generating + times.waiting < time.perf_counter() - started


def test_groups_are_independent_of_each_other(prompts, policy, played):
    engine = load_engine("transformers", policy, prompts.stop_ids, 16, 512)
    only, _ = rollout(engine, SlowJudge(5), prompts, TASKS[2:], 4, EpisodeConfig(3, 30, 24), seed=7, first_group=2)
    assert content(only) == content(played)[8:]


def test_turns_extend_token_by_token(prompts, played):
    for task, trajectory in zip([task for task in TASKS for _ in range(4)], played, strict=True):
        assert trajectory.turns[0].prompt_ids == prompts.first(task)
        for before, turn in zip(trajectory.turns, trajectory.turns[1:], strict=False):
            marks = prompts.tokenizer.decode(turn.prompt_ids)
            assert marks.startswith("<|feedback|>" if before.finished else "<|end|><|feedback|>")
            assert marks.endswith("<|answer|>")
        for turn in trajectory.turns:
            assert len(turn.response_ids) == len(turn.logprobs) <= 30
            assert turn.finished == (turn.response_ids[-1] in prompts.stop_ids)
            assert turn.source == (prompts.text(turn.response_ids) or None)


def test_feedback_is_that_of_the_last_verdict_within_its_limit(prompts, played):
    for trajectory in played:
        for before, turn in zip(trajectory.turns, trajectory.turns[1:], strict=False):
            text = prompts.tokenizer.decode(turn.prompt_ids).split("<|feedback|>")[1].removesuffix("<|answer|>")
            assert prompts.count(text) <= 24
            assert text.strip() and before.verdict is not None


def test_generation_goes_on_while_a_verdict_is_awaited(prompts, policy):
    """The first answer's verdict comes only after every other trajectory is complete."""
    others = threading.Event()

    class Holding(SlowJudge):
        held = False

        def submit(self, task, source):
            if self.held:
                return super().submit(task, source)
            self.held = True
            return self.pool.submit(lambda: others.wait(20) and self._judge(task, source, 0.0))

    def watch(progress):
        if progress.judging == 1 and progress.turns_done >= 11 * 3:
            others.set()

    judge = Holding(0, longest=0.0)
    trajectories = play(prompts, policy, judge, on_progress=watch)
    assert others.is_set() and all(len(t.turns) == 3 for t in trajectories)


def test_answer_without_code_does_not_reach_the_judge(prompts, policy, monkeypatch):
    monkeypatch.setattr(prompts, "extract", lambda answer, name: None)
    judge = SlowJudge(0)
    trajectories = play(prompts, policy, judge)
    assert not judge.sources
    verdicts = {(turn.verdict.status, turn.verdict.reason) for t in trajectories for turn in t.turns}
    assert verdicts == {("invalid", "no_code")} and all(turn.source is None for t in trajectories for turn in t.turns)


def test_trajectory_that_reaches_the_context_ends_early(prompts, policy, played):
    longest = max(sum(len(t.prompt_ids + t.response_ids) for t in trajectory.turns) for trajectory in played)
    trajectories = play(prompts, policy, SlowJudge(0), context=longest - 25)
    assert min(len(t.turns) for t in trajectories) < 3
    for short, full in zip(content(trajectories), content(played), strict=True):
        assert short["turns"] == full["turns"][: len(short["turns"])]


@pytest.mark.slow
def test_a_context_that_just_holds_every_turn_cuts_none(prompts, policy, played):
    asked = [sum(len(t.prompt_ids + t.response_ids) for t in p.turns) - len(p.turns[-1].response_ids) for p in played]
    assert content(play(prompts, policy, SlowJudge(0), context=max(asked) + 30)) == content(played)
    shorter = play(prompts, policy, SlowJudge(0), context=max(asked) + 29)
    assert [len(t.turns) for t in shorter] == [3 - (tokens == max(asked)) for tokens in asked]


def test_task_that_does_not_fit_is_named(prompts, policy):
    longest = max(len(prompts.first(task)) for task in TASKS)
    assert play(prompts, policy, SlowJudge(0), context=longest + 30, turns=1)
    with pytest.raises(
        DrKernelError, match=rf"task t\d: found a prompt of {longest} tokens, expected at most {longest - 1}"
    ):
        play(prompts, policy, SlowJudge(0), context=longest + 29)


def test_failed_judging_is_an_error(prompts, policy):
    class WorkerCrashed(SlowJudge):
        def _judge(self, task, source, delay):
            raise RuntimeError("examiner lost")

    with pytest.raises(RuntimeError, match="examiner lost"):
        play(prompts, policy, WorkerCrashed(0))


def test_verdict_that_never_comes_is_an_error(prompts, policy):
    class Silent(SlowJudge):
        def submit(self, task, source):
            return Future()

    with pytest.raises(WorkerLost, match=r"no verdict within 0.2 s, 12 are awaited"):
        play(prompts, policy, Silent(0), deadline_s=0.2)


def test_a_verdict_that_takes_its_time_is_waited_for(prompts, policy, monkeypatch):
    class Slow(SlowJudge):
        def _judge(self, task, source, delay):
            return super()._judge(task, source, 0.3)

    monkeypatch.setattr("drkernel.rollout.verdicts._POLL_S", 0.05)
    assert all(t.turns[0].verdict for t in play(prompts, policy, Slow(0), turns=1, samples=1))


@pytest.mark.parametrize("verdicts_needed", [0, 5, 12])
def test_a_rollout_is_given_up_as_soon_as_it_is_told_to(prompts, policy, verdicts_needed):
    class Stalling(SlowJudge):
        """Gives some verdicts, then none: the rollout is stopped while it waits."""

        def submit(self, task, source):
            return super().submit(task, source) if len(self.sources) < verdicts_needed else Future()

    judge = Stalling(0)
    start = time.monotonic()
    with pytest.raises(Stopped):
        play(prompts, policy, judge, should_stop=lambda: len(judge.sources) >= verdicts_needed)
    assert time.monotonic() - start < 10


def test_the_policy_reads_what_it_is_told_and_the_record_keeps_the_verdict(prompts, policy):
    told = play(prompts, policy, SlowJudge(0), feedback_view=lambda verdict: Verdict("invalid", "told"))
    assert all(t.verdict.status == "incorrect" for episode in told for t in episode.turns)
    later = [prompts.text(t.prompt_ids) for episode in told for t in episode.turns[1:]]
    assert later and all("error: told" in text for text in later)


def test_seed_changes_all_answers_and_greedy_none(prompts, policy, played):
    other = play(prompts, policy, SlowJudge(0, 0.0), seed=8)
    assert all(a.turns[0].response_ids != b.turns[0].response_ids for a, b in zip(played, other, strict=True))
    assert len({tuple(t.turns[0].response_ids) for t in played[:4]}) > 1
    greedy = play(prompts, policy, SlowJudge(0, 0.0), sampling=Sampling(temperature=0.0), samples=2)
    assert content(greedy)[0]["turns"] == content(greedy)[1]["turns"]


def test_progress_reaches_the_total(prompts, policy):
    seen = []
    play(prompts, policy, SlowJudge(0), on_progress=seen.append)
    assert seen[-1].turns_done == seen[-1].turns_total == 36 and seen[-1].judging == 0
    assert [p.tokens for p in seen] == sorted(p.tokens for p in seen)


class FailingJudge(SlowJudge):
    """Fails on the second submission of all."""

    def _judge(self, task: Task, source: str, delay: float) -> Verdict:
        number = self.sources.index(source)
        return Verdict("judge_failure", "worker_lost") if number == 1 else super()._judge(task, source, delay)


def test_a_trajectory_ends_where_the_judge_fails_and_the_others_go_on(prompts, policy):
    found = play(prompts, policy, FailingJudge(0))
    failed = [trajectory for trajectory in found if trajectory.ends_in_judge_failure]
    statuses = {turn.verdict.status for t in found if t not in failed for turn in t.turns}
    assert failed and statuses <= {"incorrect", "invalid"}
    assert {len(trajectory.turns) for trajectory in found if trajectory not in failed} == {3}
    assert all(turn.verdict.status != "judge_failure" for trajectory in failed for turn in trajectory.turns[:-1])


def test_a_task_that_the_judge_no_longer_takes_is_its_failure_and_ends_only_these_trajectories(prompts, policy):
    class Refusing(SlowJudge):
        def _judge(self, task: Task, source: str, delay: float) -> Verdict:
            if task.id == "t1":
                raise DrKernelError("task t1: its reference fails: out of memory")
            return super()._judge(task, source, delay)

    played = play(prompts, policy, Refusing(0))
    refused = [t for t in played if t.ends_in_judge_failure]
    assert refused and {t.task_id for t in refused} == {"t1"}
    assert refused[0].turns[-1].verdict.reason == "not_prepared"
    assert "out of memory" in refused[0].turns[-1].verdict.detail


@pytest.mark.slow
def test_turns_after_stripped_thoughts_have_a_history_of_their_own(prompts, policy, monkeypatch):
    """A stand-in for thoughts: the first half of every completion."""
    shown = lambda self, prompt, completion, finished=True: prompt + completion[len(completion) // 2 :]
    monkeypatch.setattr(type(prompts), "history", shown)
    judge = SlowJudge(0, longest=0.0)
    trajectories = play(prompts, policy, judge)
    for trajectory in trajectories:
        sequence = []
        for number, turn in enumerate(trajectory.turns):
            assert turn.history == (sequence if number else None)
            sequence = sequence + shown(prompts, turn.prompt_ids, turn.response_ids)
    assert content(play(prompts, policy, SlowJudge(1), slots=5)) == content(trajectories)
    batch = pack(trajectories[:2])
    scores = policy.logprobs(batch)
    assert len(batch.cu_seqlens) - 1 == sum(len(t.turns) for t in trajectories[:2])
    assert (scores.logprobs - batch.rollout_logprobs)[batch.loss_mask].abs().max() < 1e-4
    assert torch.equal(pack(trajectories, "turn").tokens, pack(trajectories).tokens)
