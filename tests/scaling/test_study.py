"""A study loses nothing: whatever interrupts it, however it is cut, the turns are those of one run from end to end."""

import hashlib
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest

from drkernel.config import ScalingConfig
from drkernel.judge import NotPrepared, feedback
from drkernel.scaling import records, study
from drkernel.scaling.models import TaskCompletion, TokenModel
from drkernel.scaling.solutions import Solution
from drkernel.scaling.strategies import Strategy
from drkernel.types import DrKernelError, Task, Verdict
from tests.scaling.playing import TASKS, Engine, Interrupted, Judge, Prompts, content, model_of, play

STRATEGIES = [
    ScalingConfig("single", trials=3),
    ScalingConfig("parallel", budget=5),
    ScalingConfig("sequential", budget=4),
    ScalingConfig("managed", budget=6, window=2, trials=2),
    ScalingConfig("managed", budget=6, window=3, keep="window"),
    ScalingConfig("mixture", budget=7, chains=3),
    ScalingConfig("parallel", budget=6, stop_at=2.0),
    ScalingConfig("mixture", budget=8, chains=2, patience=3, tokens=40),
]


@pytest.mark.parametrize("options", STRATEGIES, ids=lambda options: Strategy(options).label)
def test_an_interrupted_study_goes_on_to_the_turn_and_ends_up_the_same(tmp_path, options):
    whole = play(tmp_path, options)
    assert len(whole) >= len(TASKS) * options.trials
    for number, steps in enumerate((1, 4, 9)):
        folder = tmp_path / str(number)
        folder.mkdir()
        played = -1
        while True:
            try:
                found = play(folder, options, engine=Engine(number, steps=steps), judge=Judge(number))
                break
            except Interrupted:
                steps += 1  # progress is certain, and every turn is an interruption sooner or later
                found = content(records.read(folder / records.RESULTS))
                assert len(found) >= played
                played = len(found)
        assert found == whole


def test_a_study_that_is_complete_asks_nobody(tmp_path):
    whole = play(tmp_path, STRATEGIES[3])
    engine, judge = Engine(), Judge(unusable=[task.id for task in TASKS])
    assert play(tmp_path, STRATEGIES[3], engine=engine, judge=judge) == whole
    assert not engine.requests and not judge.sources


def test_more_trials_are_added_to_those_that_were_played(tmp_path):
    one = play(tmp_path, ScalingConfig("managed", budget=3))
    two = play(tmp_path, ScalingConfig("managed", budget=3, trials=2))
    assert len(one) == 15 and len(two) == 30 and all(two[key] == one[key] for key in one)


@pytest.mark.parametrize("number", [2, 3, 7])
def test_shards_merge_into_what_one_study_plays(tmp_path, number):
    options = STRATEGIES[5]
    for shard in range(number):
        inner = tmp_path / "shards" / f"{shard}-of-{number}"
        inner.mkdir(parents=True)
        play(inner, options, tasks=TASKS[shard::number], engine=Engine(shard))
    study.merge(tmp_path)
    study.merge(tmp_path)
    merged = content(records.read(tmp_path / records.RESULTS))
    (tmp_path / "one").mkdir()
    assert merged == play(tmp_path / "one", options)
    engine = Engine()
    assert play(tmp_path, options, engine=engine) == merged and not engine.requests


def test_prompts_repeat_the_shown_turns_token_by_token(tmp_path):
    engine, prompts = Engine(), Prompts()
    played = play(tmp_path, ScalingConfig("managed", budget=6, window=2), engine=engine)
    for request in engine.requests:
        id, trial, call = request.id.rsplit("/", 2)
        record = played[id, "managed (window 2)", int(trial), int(call)]
        expected = prompts.first(next(task for task in TASKS if task.id == id))
        for number in record.shown:
            before = played[id, record.strategy, record.trial, number]
            expected += records.unpack(before.answer)
            expected += prompts.next(feedback(before.verdict, 9, prompts.count), before.finished)
        assert request.prompt_ids == expected and record.prompt_tokens == len(expected)
    assert {len(record.shown) for record in played.values()} == {0, 1, 2}


def test_the_first_answers_are_the_same_for_all_strategies(tmp_path):
    first = []
    for options in (STRATEGIES[1], STRATEGIES[2], STRATEGIES[3]):
        (tmp_path / options.name).mkdir()
        played = play(tmp_path / options.name, replace(options, trials=1))
        first.append({record.task: record.answer for record in played.values() if record.call == 0})
    assert first[0] == first[1] == first[2] and len(set(first[0].values())) > 1
    parallel = play(tmp_path / "parallel", STRATEGIES[1])
    assert len({record.answer for record in parallel.values()}) > len(TASKS)


def test_a_short_context_shows_fewer_turns_and_the_record_says_which(tmp_path):
    wide = play(tmp_path, ScalingConfig("managed", budget=6))
    (tmp_path / "short").mkdir()
    short = play(tmp_path / "short", ScalingConfig("managed", budget=6), engine=Engine(context=30))
    assert len(short) == len(wide) == 30
    assert max(len(r.shown) for r in wide.values()) == 4 > max(len(r.shown) for r in short.values()) > 0
    assert all(record.prompt_tokens <= 30 - 8 for record in short.values())


def test_a_chain_ends_where_its_context_is_full(tmp_path):
    played = play(tmp_path, ScalingConfig("mixture", budget=40, chains=2), engine=Engine(context=60))
    for key, record in played.items():
        chain = [r for r in played.values() if r.task == key[0] and r.chain == record.chain]
        assert 1 < len(chain) < 20 and sorted(r.turn for r in chain) == list(range(len(chain)))
        assert record.shown == tuple(sorted(r.call for r in chain if r.turn < record.turn))


def test_a_task_that_does_not_fit_counts_as_failed(tmp_path):
    engine = Engine(context=10)
    played = play(tmp_path, ScalingConfig("managed", budget=2), engine=engine)
    assert len(played) == 10 and not engine.requests
    assert {(r.verdict.status, r.verdict.reason, r.tokens) for r in played.values()} == {("invalid", "no_room", 0)}


def test_a_model_that_learns_late_that_a_prompt_is_too_long_is_asked_again_with_less(tmp_path):
    class DeadlineExceeded(TokenModel):
        """Takes everything, and finds out in `step`."""

        def __init__(self, engine):
            model = model_of(engine)
            self.__dict__ = model.__dict__
            self.refused = []

        @property
        def busy(self):
            return bool(self.refused) or super().busy

        def add(self, id, task, shown, seed):
            if not super().add(id, task, shown, seed):
                self.refused.append(id)
            return True

        def step(self):
            late, self.refused = self.refused, []
            return [TaskCompletion(id, None, None, 0, 0, False, 0.0, fits=False) for id in late] + super().step()

    for number, options in enumerate((ScalingConfig("managed", budget=6), ScalingConfig("mixture", budget=30))):
        for context in (10, 30):
            at_once, late = tmp_path / f"{number}-{context}", tmp_path / f"{number}-{context}-late"
            at_once.mkdir(), late.mkdir()
            expected = play(at_once, options, engine=Engine(context=context))
            assert play(late, options, model=DeadlineExceeded(Engine(context=context))) == expected


def test_nobody_waits_for_the_verdicts_of_others(tmp_path):
    """The verdict on one trial's first answer comes only after all other trials are complete."""
    others = threading.Event()

    class Holding(Judge):
        held = False

        def submit(self, task, source):
            if self.held:
                return super().submit(task, source)
            self.held = True
            self.sources.append(source)
            return self.pool.submit(lambda: others.wait(20) and self.judge(task, source, 0.0))

    def watch(progress):
        if progress.turns_done >= 4 * 6:
            others.set()

    played = play(tmp_path, ScalingConfig("managed", budget=6), judge=Holding(), on_progress=watch)
    assert others.is_set() and len(played) == 30


def test_a_task_that_the_judge_cannot_use_is_passed_over_and_told(tmp_path):
    told = []
    played = play(tmp_path, STRATEGIES[2], judge=Judge(unusable=["set/1"]), log=told.append)
    assert {record.task for record in played.values()} == {"set/0", "set/2", "set/3", "set/4"}
    assert told == ["passed over: task set/1: its reference fails"]


def test_a_judge_that_fails_over_a_task_is_no_reason_to_pass_it_over(tmp_path):
    class Failing(Judge):
        def check_task(self, task):
            if task.id == "set/1":
                raise NotPrepared("judge: a task could not be prepared")

    told = []
    with pytest.raises(NotPrepared, match="1 such in all; the same command asks again"):
        play(tmp_path, STRATEGIES[2], judge=Failing(), log=told.append)
    assert told == []


def test_a_share_without_a_usable_task_ends_like_any_other(tmp_path):
    told, seen = [], []
    judge = Judge(unusable=[task.id for task in TASKS])
    assert not play(tmp_path, STRATEGIES[2], judge=judge, log=told.append, on_progress=seen.append)
    assert sorted(told) == [f"passed over: task {task.id}: its reference fails" for task in TASKS]
    assert seen[-1].turns_total == 0


def test_a_refused_request_is_a_failed_turn_and_the_study_goes_on(tmp_path):
    class Picky(TokenModel):
        """Refuses every third answer."""

        def __init__(self):
            self.__dict__ = model_of(Engine()).__dict__

        def step(self):
            refuse = lambda answer: replace(answer, content=None, source=None, tokens=0, refused="status 400: filtered")
            return [refuse(a) if int(a.id[-1]) % 3 == 1 else a for a in super().step()]

    played = play(tmp_path, ScalingConfig("sequential", budget=5), model=Picky())
    assert len(played) == 25
    for record in played.values():
        if record.call in (1, 4):
            assert record.verdict == Verdict("invalid", "refused", "status 400: filtered")
        else:
            assert record.verdict.reason != "refused"


def test_what_was_answered_before_the_model_failed_is_judged(tmp_path):
    class Failing(TokenModel):
        def __init__(self):
            self.__dict__ = model_of(Engine()).__dict__
            self.answered = []

        def step(self):
            if len(self.answered) > 3:
                raise DrKernelError("given up")
            answers = super().step()
            self.answered += [answer.id for answer in answers]
            return answers

    class Slow(Judge):
        def check_task(self, task):
            if task.id == "set/4":
                time.sleep(0.2)

        def judge(self, task, source, delay):
            time.sleep(0.1)
            return super().judge(task, source, delay)

    model = Failing()
    with pytest.raises(DrKernelError, match="given up"):
        play(tmp_path, ScalingConfig("parallel", budget=5), model=model, judge=Slow())
    found = content(records.read(tmp_path / records.RESULTS))
    assert {f"{task}/{trial}/{call}" for task, _, trial, call in found} == set(model.answered)


def test_of_two_records_of_a_turn_the_one_that_was_started_last_counts(tmp_path):
    played = list(play(tmp_path, ScalingConfig("single")).values())
    shard = tmp_path / "shards" / "0-of-2"
    shard.mkdir(parents=True)
    records.write(tmp_path / records.RESULTS, [replace(record, started=5.0) for record in played])
    changed = [replace(record, started=n + 3.0, source="new") for n, record in enumerate(played)]
    records.write(shard / records.RESULTS, changed)
    assert [record.key for record in study.known(tmp_path)] == [record.key for record in played]
    assert [record.source == "new" for record in study.known(tmp_path)] == [False, False, False, True, True]


def test_every_turn_on_a_degenerate_task_says_so_even_without_code(tmp_path):
    class Marking(Judge):
        def check_task(self, task):
            return "zeros would pass" if task.id == TASKS[0].id else ""

    played = play(tmp_path, ScalingConfig("parallel", budget=8), judge=Marking()).values()
    assert {record.degenerate for record in played if record.task == TASKS[0].id} == {"zeros would pass"}
    assert {record.degenerate for record in played if record.task != TASKS[0].id} == {""}


def test_an_answer_without_code_fails_without_the_judge(tmp_path):
    judge = Judge()
    played = play(tmp_path, ScalingConfig("parallel", budget=8), judge=judge)
    without = [record for record in played.values() if record.source is None]
    assert without and {record.verdict.reason for record in without} == {"no_code"}
    assert not any(source.startswith("7") for source in judge.sources)


def test_a_verdict_that_never_comes_and_a_judging_that_fails_are_errors(tmp_path):
    class Silent(Judge):
        def submit(self, task, source):
            return Future()

    class WorkerCrashed(Judge):
        def judge(self, task, source, delay):
            raise RuntimeError("examiner lost")

    with pytest.raises(DrKernelError, match=r"no verdict within 0.1 s"):
        play(tmp_path, STRATEGIES[2], judge=Silent(), deadline_s=0.1)
    with pytest.raises(RuntimeError, match="examiner lost"):
        play(tmp_path, STRATEGIES[2], judge=WorkerCrashed())


def test_the_engine_works_on_few_requests_and_its_time_is_shared_out_among_them(tmp_path):
    engine = Engine()
    play(tmp_path, ScalingConfig("parallel", budget=6), model=model_of(engine, slots=4))
    charged = sum(record.generate_s for record in records.read(tmp_path / records.RESULTS))
    assert engine.most == 4 and engine.seconds <= charged <= 2 * engine.seconds + 0.05


def test_the_time_that_an_engine_gives_to_a_judge_on_its_gpu_is_not_charged_to_completions(tmp_path):
    class Sharing(Engine):
        def step(self):
            time.sleep(0.02)
            self.paused_s += 0.02
            return super().step()

    engine = Sharing()
    play(tmp_path, ScalingConfig("parallel", budget=6), model=model_of(engine, slots=4))
    charged = sum(record.generate_s for record in records.read(tmp_path / records.RESULTS))
    assert charged < engine.paused_s


def test_progress_reaches_its_total(tmp_path):
    for options, context in ((STRATEGIES[7], 1000), (ScalingConfig("mixture", budget=40), 60)):
        folder = tmp_path / options.name / str(context)
        folder.mkdir(parents=True)
        for _ in range(2):
            seen = []
            played = play(folder, options, engine=Engine(context=context), on_progress=seen.append)
            assert seen[-1].turns_done == seen[-1].turns_total == len(played)


def test_solutions_made_elsewhere_stand_under_the_same_judge(tmp_path):
    path, told = tmp_path / records.RESULTS, []
    given = [("set/0", 0, "2 3"), ("set/0", 1, "4"), ("set/1", 0, "5"), ("set/3", 0, "6"), ("other/9", 0, "8")]
    solutions = [Solution(*each, "somewhere") for each in given]
    judge = Judge(unusable=["set/1"])
    for _ in range(2):
        options = {"label": "theirs", "known": study.known(tmp_path), "log": told.append}
        study.judge_solutions(TASKS, solutions, judge, path, **options)
    found = content(records.read(path))
    assert list(found) and {(task, trial) for task, _, trial, _ in found} == {("set/0", 0), ("set/0", 1), ("set/3", 0)}
    for record in found.values():
        assert (record.model, record.strategy, record.shown, record.answer) == ("theirs", "solutions", (), None)
        assert record.verdict.seconds == 0 and record.verdict == replace(
            judge.judge(Task(record.task, ""), record.source, 0), seconds=0
        )
    assert judge.sources.count("2 3") == 1 and judge.sources.count("5") == 2
    assert told[:2] == [
        "1 of 5 solutions are for other tasks than the 5 chosen ones",
        "2 of 5 tasks have no solution; they are not counted",
    ]
    assert told[2] == "passed over: task set/1: its reference fails"


def test_a_solution_that_changed_is_judged_again_and_counts_as_it_is_now(tmp_path):
    path, judge = tmp_path / records.RESULTS, Judge()
    for source in ("2 3", "2 3", "4", "4", None, None):
        solutions = [Solution("set/0", 0, "9", "there"), Solution("set/1", 0, source, "here")]
        study.judge_solutions(TASKS[:2], solutions, judge, path, label="theirs", known=study.known(tmp_path))
        study.merge(tmp_path)
        found = content(records.read(path))
        assert {key[0]: record.source for key, record in found.items()} == {"set/0": "9", "set/1": source}
    assert sorted(judge.sources) == ["2 3", "4", "9"], "each once, and what has no code not at all"
    verdict = found["set/1", "solutions", 0, 0].verdict
    assert (verdict.status, verdict.reason) == ("invalid", "no_code")


class FailingJudge(Judge):
    """Fails on some submissions, the first time that it gets them."""

    def __init__(self, every):
        super().__init__()
        self.every, self.failed = every, set()

    def judge(self, task, source, delay):
        key = task.id, source
        if int(hashlib.sha256(repr(key).encode()).hexdigest(), 16) % self.every == 0 and key not in self.failed:
            self.failed.add(key)
            return Verdict("judge_failure", "worker_lost", "the judge failed 2 times")
        return super().judge(task, source, delay)


@pytest.mark.parametrize("options", [ScalingConfig("parallel", budget=5), ScalingConfig("sequential", budget=5)])
def test_an_answer_that_was_not_judged_does_not_count_and_is_asked_again(tmp_path, options):
    said, judge, path = [], FailingJudge(every=3), tmp_path / records.RESULTS
    (tmp_path / "undisturbed").mkdir()
    expected = play(tmp_path / "undisturbed", options)
    for attempt in range(12):
        before = records.read(path)
        study.play(
            TASKS, Strategy(options), model_of(Engine(attempt)), judge, path,
            reward=lambda verdict: 1 + (verdict.speedup or 0) if verdict.ok else 0.0,
            known=study.known(tmp_path), log=said.append, seed=5,
        )  # fmt: skip
        if len(records.read(path)) == len(before):
            break
    assert judge.failed and any(line.startswith("not judged: set/") for line in said)
    study.merge(tmp_path)
    assert content(records.read(path)) == expected, "as if the judge had not failed"
