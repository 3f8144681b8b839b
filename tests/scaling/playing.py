"""A model and a judge whose answers are pure functions, and a study that is played with them."""

import hashlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from drkernel.policy.engine import BaseEngine, Completion, Sampling
from drkernel.scaling import records, study
from drkernel.scaling.models import TokenModel
from drkernel.scaling.strategies import Strategy
from drkernel.types import DrKernelError, Task, Verdict

TASKS = [Task(f"set/{i}", "reference", family=f"f{i}", level=i % 3, split="test") for i in range(5)]
END, FEEDBACK = 0, 1


class Interrupted(Exception):
    pass


class Prompts:
    """Tokens are numbers; a task takes three of them."""

    def first(self, task):
        return [int(task.id[-1]) + 10] * 3

    def next(self, feedback, finished=True, last=None):
        return [*([] if finished else [END]), FEEDBACK, len(feedback)]

    def history(self, prompt, completion, finished=True):
        return prompt + completion

    def text(self, ids):
        return " ".join(map(str, ids))

    def extract(self, answer, name):
        return None if answer.startswith("7") else answer

    def count(self, text):
        return len(text.split())


class Engine(BaseEngine):
    """Answers are a pure function of prompt and seed; how long they take is not."""

    def __init__(self, seed=0, context=1000, steps=10**9):
        self.random, self.context, self.steps = random.Random(seed), context, steps
        self.requests, self.waiting, self.most, self.seconds = [], [], 0, 0.0

    def add(self, request):
        assert len(request.prompt_ids) + request.max_tokens <= self.context
        self.requests.append(request)
        self.waiting.append(request)
        self.most = max(self.most, len(self.waiting))

    def step(self):
        started = time.perf_counter()
        self.steps -= 1
        if self.steps < 0:
            raise Interrupted
        done = [r for r in self.waiting if self.random.random() < 0.3]
        self.waiting = [r for r in self.waiting if r not in done]
        completions = [self.complete(request) for request in done]
        self.seconds += time.perf_counter() - started
        return completions

    def complete(self, request):
        draw = random.Random(f"{request.prompt_ids} {request.seed}")
        ids = [draw.randrange(2, 10) for _ in range(draw.randrange(1, request.max_tokens))]
        finished = len(ids) < request.max_tokens - 1
        return Completion(request.id, [*ids, END] if finished else ids, [], finished)

    def release(self, id):
        pass


class Judge:
    def __init__(self, seed=0, unusable=()):
        self.random, self.unusable, self.sources = random.Random(seed), unusable, []
        self.pool = ThreadPoolExecutor(3)

    def check_task(self, task):
        if task.id in self.unusable:
            raise DrKernelError(f"task {task.id}: its reference fails")

    def submit(self, task, source):
        self.sources.append(source)
        return self.pool.submit(self.judge, task, source, self.random.random() * 0.002)

    def judge(self, task, source, delay):
        time.sleep(delay)
        self.check_task(task)
        number = int(hashlib.sha256(f"{task.id}{source}".encode()).hexdigest(), 16)
        if number % 3 == 0:
            return Verdict("incorrect", "wrong_values", "x" * (number % 5), seconds=delay)
        return Verdict("ok", "faster", speedup=number % 29 / 10, coverage=number % 7 / 7, seconds=delay)


def model_of(engine, slots=6):
    return TokenModel("m", engine, Prompts(), max_tokens=8, feedback_limit=9, slots=slots, sampling=Sampling())


def play(path, options, tasks=TASKS, engine=None, judge=None, model=None, **others):
    study.play(
        tasks,
        Strategy(options),
        model or model_of(engine or Engine()),
        judge or Judge(),
        path / records.RESULTS,
        reward=lambda verdict: 1 + (verdict.speedup or 0) if verdict.ok else 0.0,
        trials=options.trials,
        known=study.known(path),
        **{"seed": 5, "log": lambda line: None, **others},
    )
    return content(records.read(path / records.RESULTS))


def content(found):
    """The records by key, without what depends on time."""
    assert len({record.key for record in found}) == len(found), "a turn was played twice"
    timeless = {"generate_s": 0, "judge_s": 0, "started": 0}
    return {r.key: replace(r, **timeless, verdict=replace(r.verdict, seconds=0)) for r in found}
