"""Tokens per second of our engine against bare vLLM, and what a slow judge costs a rollout.

    python benchmarks/generation.py OUT [--shape 0.6b] --part engine       about 5 minutes on an H200
    python benchmarks/generation.py OUT [--shape 0.6b] --part rollout      about 9
    python benchmarks/generation.py OUT --part small --engines graphs vllm  small policies (generation_small.py)

engine   The same 512 requests (random prompts of 512 tokens, log-normal completions of prescribed length, nothing stops
         them) through our engine's add and step, and through the vLLM engine inside it directly: with the same sampling
         parameters, and with plain ones (no seed per request, no log-probabilities). Two warm-ups, five timed runs.
rollout  drkernel.rollout on 16 prompts x 16 samples x 3 turns, with prescribed lengths as in benchmarks/update_step.py,
         and a judge that answers at once (generation alone) or after 2 s (median; log-normal, sigma 0.5, seeded); up to
         three timed runs of each, within --seconds. Once with the slow judge in lock-step: all trajectories wait for
         the last verdict of a turn.

Random weights; the order is turned around every round; the prefix cache is empty before each run. What was measured is
in OUT/generation_<part>.json and .md after every round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import cast

import generation_small
import torch
from shapes import SHAPES, config_of

from drkernel.judge import JudgeProtocol
from drkernel.policy import Engine, Prompts, Request
from drkernel.policy.engines.vllm_engine import VllmEngine
from drkernel.rollout import EpisodeConfig, rollout
from drkernel.training.loading import random_policy
from drkernel.training.ranks import init_distributed
from drkernel.types import Task, Verdict

VERDICT = Verdict("ok", "faster", "Correct.", speedup=1.5, coverage=0.5, reference_ms=0.1, submission_ms=0.07)
FEEDBACK_TOKENS = 64
SIGMA = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="0.6b", choices=SHAPES)
    parser.add_argument("--part", default="engine", choices=[*WAYS, "small"])
    parser.add_argument("--seconds", type=float, default=300, help="no round begins later than this")
    parser.add_argument("--rounds", type=int, help="timed ones; 5 in part engine, 3 in part rollout")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument(
        "--median", type=int, help="of the completions' lengths; 160 in part engine, 2048 in part rollout"
    )
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--judge-seconds", type=float, default=2.0, help="median")
    parser.add_argument("--kv", type=float, default=90.0, help="GiB")
    generation_small.arguments(parser)
    options = parser.parse_args()
    options.median = options.median or (2048 if options.part == "rollout" else 160)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "small":
        few = lambda turn, count, vocabulary: requests(options, turn, count, vocabulary)
        generation_small.measure(options, few, options.prompt + longest(options.median))
        return
    policy = random_policy(config_of(options.shape), init_distributed())
    started = time.perf_counter()
    context = options.prompt + 3 * (longest(options.median) + FEEDBACK_TOKENS)
    with closing(VllmEngine(policy, set(), options.slots, context, options.kv)) as engine:
        result = {"machine": machine(), "command": sys.argv, "shape": options.shape, "part": options.part}
        result["start_s"] = time.perf_counter() - started
        warm_up(engine, options)
        rounds(engine, options, result)


def warm_up(engine: VllmEngine, options: argparse.Namespace) -> None:
    few = argparse.Namespace(**vars(options) | {"requests": 64, "median": 32})
    run(engine_ways(engine, few)["ours"], engine, -1)


def rounds(engine: VllmEngine, options: argparse.Namespace, result: dict) -> None:
    ways = WAYS[options.part](engine, options)
    result["runs"] = {name: [] for name in ways}
    path = options.out / f"generation_{options.part}.json"
    warm_ups, timed = (2, options.rounds or 5) if options.part == "engine" else (0, options.rounds or 3)
    limit = time.monotonic() + options.seconds
    for turn in range(warm_ups + timed):
        if turn > warm_ups and time.monotonic() > limit:
            break
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            if "lock-step" in name and turn > warm_ups:
                continue  # the longest, and only for comparison
            row = run(ways[name], engine, turn)
            print(name, turn, row, flush=True)
            if turn >= warm_ups:
                result["runs"][name].append(row)
        path.write_text(json.dumps(result, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(result))
    print(path.with_suffix(".md").read_text())


def run(way: Callable[[int], int], engine: VllmEngine, turn: int) -> dict[str, float]:
    assert engine._engine.reset_prefix_cache()
    started = time.perf_counter()
    tokens = way(turn)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


def engine_ways(engine: VllmEngine, options: argparse.Namespace) -> dict[str, Callable[[int], int]]:
    """name -> run number -> tokens generated; all ways of a run get the same requests."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    def plain(request: Request) -> SamplingParams:
        kind = RequestOutputKind.FINAL_ONLY
        return SamplingParams(max_tokens=request.max_tokens, ignore_eos=True, detokenize=False, output_kind=kind)

    def ours(turn: int) -> int:
        for request in requests(options, turn):
            engine.add(request)
        tokens = 0
        while engine.busy:
            tokens += sum(len(completion.token_ids) for completion in engine.step())
        return tokens

    def bare(parameters: Callable[[Request], SamplingParams]) -> Callable[[int], int]:
        def way(turn: int) -> int:
            vllm = engine._engine
            for request in requests(options, turn):
                vllm.add_request(request.id, {"prompt_token_ids": request.prompt_ids}, parameters(request))
            tokens = 0
            while vllm.has_unfinished_requests():
                tokens += sum(len(out.outputs[0].token_ids) for out in vllm.step() if out.finished)
            return tokens

        return way

    return {"ours": ours, "bare vLLM": bare(engine.parameters), "bare vLLM, no seeds or logprobs": bare(plain)}


def requests(
    options: argparse.Namespace, turn: int, count: int | None = None, vocabulary: int | None = None
) -> list[Request]:
    draw = random.Random(turn)
    words = range(vocabulary or SHAPES[options.shape]["vocab_size"])
    return [
        Request(f"{turn}.{i}", draw.choices(words, k=options.prompt), length(draw, options.median), seed=i)
        for i in range(count or options.requests)
    ]


def length(draw: random.Random, median: int) -> int:
    return min(max(16, round(draw.lognormvariate(0, SIGMA) * median)), longest(median))


def longest(median: int) -> int:
    return 4 * median


def rollout_ways(engine: VllmEngine, options: argparse.Namespace) -> dict[str, Callable[[int], int]]:
    tasks = [Task(f"t{i}", "") for i in range(options.groups)]

    def way(make_judge: Callable[[], object], play: Callable) -> Callable[[int], int]:
        def run(turn: int) -> int:
            prompts = Stub(SHAPES[options.shape]["vocab_size"], options.prompt, turn)
            prescribed = Prescribed(engine, options.median, turn)
            play(prescribed, make_judge(), prompts, tasks, options.samples, longest(options.median), turn)
            return prescribed.tokens

        return run

    def slow() -> SlowJudge:
        return SlowJudge(options.judge_seconds)

    return {
        "judge at once": way(lambda: SlowJudge(0.0), streaming),
        "judge of 2 s": way(slow, streaming),
        "judge of 2 s, lock-step": way(slow, lock_step),
    }


def streaming(engine: Prescribed, judge: SlowJudge, prompts: Stub, tasks, samples: int, limit: int, seed: int) -> None:
    # The three have what `rollout` calls, and no more.
    players = cast(Engine, engine), cast(JudgeProtocol, judge), cast(Prompts, prompts)
    trajectories, _ = rollout(*players, tasks, samples, EpisodeConfig(3, limit, 32), seed=seed)
    assert all(len(t.turns) == 3 for t in trajectories)


def lock_step(engine: Prescribed, judge: SlowJudge, prompts: Stub, tasks, samples: int, limit: int, seed: int) -> None:
    """As training loops without streaming do it: each turn is generated for all, then judged for all."""
    rows = {f"{g}.{s}": list(prompts.first(task)) for g, task in enumerate(tasks) for s in range(samples)}
    for turn in range(3):
        for name, tokens in rows.items():
            engine.add(Request(f"{name}.{turn}", list(tokens), limit, seed=0))
        while engine.busy:
            for completion in engine.step():
                rows[completion.id.rpartition(".")[0]] += completion.token_ids
        for verdict in [judge.submit(tasks[0], "") for _ in rows]:
            verdict.result()
        for tokens in rows.values():
            tokens.extend(prompts.next("", True))


class Prescribed:
    """The engine, with each completion's length drawn from (run, request) instead of a limit for all."""

    def __init__(self, engine: Engine, median: int, seed: int):
        self.engine, self.median, self.seed, self.tokens = engine, median, seed, 0
        self.context = engine.context

    @property
    def busy(self) -> bool:
        return self.engine.busy

    def add(self, request: Request) -> None:
        tokens = length(random.Random(f"{self.seed}/{request.id}"), self.median)
        self.engine.add(dataclasses.replace(request, max_tokens=tokens))

    def step(self):
        completed = self.engine.step()
        self.tokens += sum(len(completion.token_ids) for completion in completed)
        return completed

    def release(self, id: str) -> None:
        self.engine.release(id)


class SlowJudge:
    """The same verdict for everything, after a log-normal delay; any number of submissions at a time."""

    def __init__(self, median: float):
        self.median, self.draw = median, random.Random(0)

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        future: Future[Verdict] = Future()
        if self.median:
            timer = threading.Timer(self.draw.lognormvariate(0, 0.5) * self.median, future.set_result, (VERDICT,))
            timer.daemon = True
            timer.start()
        else:
            future.set_result(VERDICT)
        return future


class Stub:
    """drkernel.policy.Prompts without a tokenizer: random tokens, and every completion is code."""

    def __init__(self, vocabulary: int, tokens: int, seed: int):
        self.draw, self.vocabulary, self.length = random.Random(seed), range(vocabulary), tokens
        self.stop_ids: set[int] = set()

    def first(self, task: Task) -> list[int]:
        return self.draw.choices(self.vocabulary, k=self.length)

    def next(self, feedback: str, finished: bool, last: int | None = None) -> list[int]:
        return self.draw.choices(self.vocabulary, k=FEEDBACK_TOKENS)

    def history(self, prompt: list[int], completion: list[int], finished: bool = True) -> list[int]:
        return prompt + completion

    def text(self, token_ids: list[int]) -> str:
        return ""

    def extract(self, text: str, name: str) -> str:
        return "class ModelNew: ..."

    def count(self, text: str) -> int:
        return len(text) // 4


def markdown(result: dict) -> str:
    ways, part = result["runs"], result["part"]
    first = list(ways)[1 if part == "engine" else 0]
    lines = [f"Qwen3-{result['shape']} shape, random weights; {result['machine']}; start-up {result['start_s']:.0f} s"]
    lines += ["", f"| {part} | median tokens/s | range | median s | against {first} |", "|---|---|---|---|---|"]
    lines += [line(name, rows, ways[first], part) for name, rows in ways.items() if rows]
    return "\n".join(lines) + "\n"


def line(name: str, rows: list[dict], others: list[dict], part: str) -> str:
    speeds = [row["tokens"] / row["seconds"] for row in rows]
    seconds = [row["seconds"] for row in rows]
    pairs = list(zip(rows, others, strict=False))  # of the same round, so of the same requests
    if part == "engine":
        against = f"{statistics.median(b['seconds'] / a['seconds'] for a, b in pairs):.3f} of its tokens/s"
    else:
        against = f"{statistics.median(a['seconds'] / b['seconds'] for a, b in pairs):.3f} of its time"
    spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
    return f"| {name} | {statistics.median(speeds):,.0f} | {spread} | {statistics.median(seconds):.1f} | {against} |"


def machine() -> str:
    import vllm

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{name}, torch {torch.__version__}, vLLM {vllm.__version__}"


WAYS = {"engine": engine_ways, "rollout": rollout_ways}

if __name__ == "__main__":
    main()
