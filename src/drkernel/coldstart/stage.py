"""`python train.py stage=coldstart`: tasks -> graded solutions -> verdicts -> trajectories -> tokenizer -> policy.

The run folder then has verdicts.jsonl (every solution and its verdict), metrics.jsonl, and policy/, a Hugging Face
folder that `policy.path=` takes. Judging is the expensive part, so a second call keeps the verdicts
that are there and goes on.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice

import torch

from drkernel.coldstart.solutions import Solution
from drkernel.coldstart.trajectories import (
    JudgedSolution,
    draw_solutions,
    draw_unjudged,
    judge_solutions,
    make_trajectory,
    unjudged_trajectory,
)
from drkernel.config import Config, judge_options
from drkernel.judge import Judge, feedback
from drkernel.policy.model import Policy, new_policy
from drkernel.policy.prompts import CompactPrompts, condense
from drkernel.policy.tokenizer import END, PAD, train_tokenizer
from drkernel.policy.transfer import export
from drkernel.tasks.generator import generate
from drkernel.training import supervised
from drkernel.training.optimizers import OPTIMIZERS
from drkernel.training.progress import Progress, make_console
from drkernel.training.run import Run
from drkernel.training.supervised import Epochs
from drkernel.types import Task, Trajectory

TOKENIZED = 4000
"""Tasks that nobody judged on whose texts the tokenizer is trained, beside all that are judged."""


def run(config: Config) -> None:
    """The whole stage; `ColdstartConfig` has its options."""
    options, folder = config.coldstart, Run(config)
    folder.rewind(0)
    torch.set_num_threads(config.trainer.threads or torch.get_num_threads())
    drawn = partial(generate, seed=config.seed, dtypes=config.tasks.dtypes, version=config.tasks.generator)
    train_tasks, held_out = drawn("train", options.tasks + options.unjudged), drawn("validation", options.held_out)
    train_tasks, unjudged = train_tasks[: options.tasks], train_tasks[options.tasks :]
    with Progress(make_console()) as progress:
        with Judge(**judge_options(config)) as judge:
            count = progress.bar("judging solutions", None)
            graded = judge_solutions(
                train_tasks + held_out, judge, folder.path / "verdicts.jsonl", options.mistakes, count
            )
        refused = len(train_tasks) + len(held_out) - len(graded)
        progress.log(f"{summary(graded)}; {refused} tasks refused by the judge")
        train_tasks, held_out = ([task for task in part if task.id in graded] for part in (train_tasks, held_out))
        drawn_answers = ((task, unjudged_solution(task, config)) for task in unjudged)
        answered = [(task, solution) for task, solution in drawn_answers if solution]
        sample = [text for task, solution in answered[:TOKENIZED] for text in (condense(task.source), solution.source)]
        known = texts(train_tasks, graded, config) + sample
        tokenizer = train_tokenizer(known, options.vocabulary, options.longest_token)
        prompts = CompactPrompts(tokenizer)
        build = partial(trajectories, config, graded, prompts)
        data, validation = build(train_tasks, options.trajectories), build(held_out, 2)
        data += [unjudged_trajectory(task, solution, prompts) for task, solution in answered]
        whole = [shortened(trajectory, options.positions) for trajectory in data]
        validation = [short for each in validation if (short := shortened(each, options.positions)).turns]
        if left_out := len(data) - len(data := [trajectory for trajectory in whole if trajectory.turns]):
            progress.log(f"{left_out} trajectories left out, whose first turn has more than {options.positions} tokens")
        vocabulary = tokenizer.get_vocab()
        special_ids = {"eos_token_id": vocabulary[END], "pad_token_id": vocabulary[PAD]}
        policy = new_policy(len(tokenizer), options.hidden, options.layers, positions=options.positions, **special_ids)
        policy.to("cuda" if torch.cuda.is_available() else "cpu")
        tokens = sum(len(t.prompt_ids) + len(t.response_ids) for episode in data for t in episode.turns)
        progress.log(
            f"{len(data)} trajectories, {tokens / len(data):.0f} tokens each, {_millions(policy):.1f}M parameters"
        )
        train(config, policy, data, validation, folder, progress)
    export(policy, folder.path / "policy", tokenizer, torch.bfloat16)
    folder.close()


def train(
    config: Config, policy: Policy, data: list[Trajectory], held_out: list[Trajectory], folder: Run, progress: Progress
) -> None:
    """Supervised training from scratch; the loss of `held_out` is computed every 50 steps."""
    options, limit = config.coldstart, config.trainer.micro_batch_tokens
    rows, unseen = ([supervised.row_of(trajectory) for trajectory in part] for part in (data, held_out))
    epochs = Epochs([*map(len, rows)], config.seed, options.epochs, batch_tokens=options.batch_tokens)
    optimizer = OPTIMIZERS[options.optimizer](policy, options.lr, 0.1)
    steps, advance = epochs.steps, progress.bar("supervised training", epochs.steps)
    for done, chosen in enumerate(islice(epochs.batches(), steps)):
        rate = options.lr * supervised.schedule(done, steps)
        batch = [rows[i] for i in chosen]
        metrics = supervised.step(policy, optimizer, batch, rate, max_tokens=limit, max_grad_norm=1.0)
        step = done + 1
        advance(1)
        if step % 50 == 0 or step == steps:
            metrics["held_out"] = supervised.loss(policy, unseen, limit)
            progress.log(f"step {step}/{steps}: loss {metrics['loss']:.4f}, held out {metrics['held_out']:.4f}")
        folder.log(step, metrics)


def trajectories(
    config: Config, graded: dict[str, list[JudgedSolution]], prompts: CompactPrompts, tasks: list[Task], per_task: int
) -> list[Trajectory]:
    """`per_task` seeded trajectories of each task."""
    feedback_on = partial(feedback, limit=config.judge.feedback_tokens, count=prompts.count)
    made = []
    for task in tasks:
        draw = random.Random(f"{config.seed}/{task.id}")
        for _ in range(per_task):
            drawn = draw_solutions(graded[task.id], config.trainer.turns, config.coldstart.fused_share, draw)
            made.append(make_trajectory(task, drawn, prompts, feedback_on))
    return made


def unjudged_solution(task: Task, config: Config) -> Solution | None:
    """The seeded solution of a task that is not judged, if there is any."""
    return draw_unjudged(task, config.coldstart.fused_share, random.Random(f"{config.seed}/{task.id}"))


def shortened(trajectory: Trajectory, most: int) -> Trajectory:
    """The first turns that have at most so many tokens together; perhaps none."""
    ends = accumulate(len(turn.prompt_ids) + len(turn.response_ids) for turn in trajectory.turns)
    return replace(trajectory, turns=[turn for turn, end in zip(trajectory.turns, ends, strict=True) if end <= most])


def texts(tasks: list[Task], graded: dict[str, list[JudgedSolution]], config: Config) -> list[str]:
    """The texts that the tokenizer is trained on: all that the policy will read and write."""
    solutions = [solution for task in tasks for solution in graded[task.id]]
    feedbacks = [feedback(s.verdict, config.judge.feedback_tokens, lambda text: len(text) // 6) for s in solutions]
    return [condense(task.source) for task in tasks] + [s.source for s in solutions] + feedbacks


def summary(graded: dict[str, list[JudgedSolution]]) -> str:
    """How many solutions of each kind are ok, and their median speed-up, in one line."""
    kinds: dict[str, list[JudgedSolution]] = {}
    for solution in (s for solutions in graded.values() for s in solutions):
        kinds.setdefault(solution.kind, []).append(solution)
    parts = []
    for kind, found in sorted(kinds.items()):
        speedups = sorted(s.verdict.speedup or 0.0 for s in found if s.verdict.ok)
        median = f", median {speedups[len(speedups) // 2]:.2f}x" if speedups else ""
        parts.append(f"{kind}: {len(found)} judged, {len(speedups)} ok{median}")
    return "; ".join(parts)


def _millions(policy: Policy) -> float:
    return sum(p.numel() for p in policy.parameters()) / 1e6
