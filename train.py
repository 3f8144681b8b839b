"""Multi-turn reinforcement learning of a policy that writes Triton kernels.

    python train.py algo=trloo reward=profiling filters=full     one run; the same command again resumes it
    python train.py policy=qwen3_8b trainer.gpus=7               seven GPUs train (FSDP2, vLLM), the eighth measures
    python train.py coldstart=seed_8m                            make an 8M policy, trained less than policy=seed_8m
    python train.py stage=sft policy=qwen3_8b sft.data=FILE      supervised training on trajectories (training/sft.py)

The algorithm is TRLOO with profiling rewards (Dr. Kernel, arXiv 2602.05885), or what the config groups choose instead:

    rollout     `samples` trajectories of `turns` turns for each of `prompts` tasks; the judge judges every turn
    reward      R = C (1 + min(s, 3) + PR) per turn, then rewards-to-go per (trajectory, turn)
    filters     groups without spread are dropped and refilled; PRS and MRS reject single turns or trajectories
    advantage   leave-one-out within each (prompt, turn)
    update      one clipped policy-gradient step over packed rows, one row per trajectory

Departures from the paper, each selectable back: coverage is a share of device time alone, so PRS has another threshold;
turns that PRS rejects leave the baseline; PR pays from a speed-up of 1 on; the loss averages over tokens. With one
optimizer step per rollout the probability ratio is 1: no pass for old log-probabilities, and clipping cannot act.

On several GPUs every rank runs this file. Each rank generates a shard of the trajectories, which are then all-gathered,
so that all ranks compute the same batch. Only the forward and backward passes over it are distributed (training/).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import hydra
import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.optim import Optimizer

from drkernel.coldstart import stage as coldstart
from drkernel.config import Config, load_run, one_line_errors
from drkernel.objective.advantages import alone
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS, decide, keep_groups
from drkernel.objective.metric_sums import MetricSums, add, mean_of, means
from drkernel.objective.mismatch import importance_weights
from drkernel.objective.returns import reward_to_go, without_regressions
from drkernel.objective.rollouts import without_judge_failures
from drkernel.policy.lora import without_adapters
from drkernel.policy.transfer import check_agreement
from drkernel.rollout import too_long
from drkernel.training import build, completions, opening, overlap, plan, report, sft, step_time, update, validation
from drkernel.training.build import export_policy, load_sets, load_validation, make_engine, make_policy, make_prompts
from drkernel.training.completions import Prepared
from drkernel.training.judging import judge_of_node, reserved_gpus
from drkernel.training.packing import minibatches, pack, rows_that_train
from drkernel.training.preemption import Preemption
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks, init_distributed, launch
from drkernel.training.rollout_metrics import reward_sums, tabulate_rollouts
from drkernel.training.run import Run, check_tasks, opened
from drkernel.training.sampler import Sampler
from drkernel.training.saving import Saver
from drkernel.training.seeds import generator
from drkernel.training.sharded_rollout import StepRollouts, describe_rollouts, play
from drkernel.training.speed import update_speed
from drkernel.training.timer import Timer
from drkernel.training.trainer import Trainer, folder_line, log, resume, run_steps, set_up_torch
from drkernel.types import Batch, Task, Trajectory, WorkerLost


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(composed: DictConfig) -> None:
    with one_line_errors(Config):
        config = load_run(composed)
        if config.plan:
            plan.show(config, config.trainer.gpus, make_console())
            step_time.show(config, config.trainer.gpus, make_console())
        elif (code := launch(config.trainer.gpus, reserved_gpus(config))) is not None:
            sys.exit(code)
        else:
            stage = {"rl": train, "sft": sft.train, "coldstart": coldstart.train}[config.stage]
            stage(config, init_distributed(reserved_gpus(config)))


def train(config: Config, ranks: Ranks) -> None:
    """Build everything, resume, and take steps until the run is complete or a signal ends it."""
    set_up_torch(config, ranks)
    with opened(config, ranks) as run, built(config, ranks, run) as whole:
        trainer, optimizer, preemption, validating, held_out = whole
        resume(trainer, optimizer)
        to_validate = validation.usable_tasks(trainer, validating)
        over = has_table(trainer) and trainer.state.step >= config.trainer.steps
        to_test = [] if over else validation.usable_tasks(trainer, held_out, validation.TESTED)
        validation.begin(trainer, optimizer, to_validate)

        def next_step() -> None:
            metrics = trainer.state.pending or step(trainer, optimizer)
            log(trainer, validation.validate(trainer, to_validate, metrics))

        if run_steps(trainer, optimizer, preemption, next_step):
            finish(trainer, to_test)
    ranks.close()


@contextmanager
def built(
    config: Config, ranks: Ranks, run: Run | None
) -> Iterator[tuple[Trainer, Optimizer, Preemption, list[Task], list[Task]]]:
    """What a run is made of, what changes its weights, what may end it early, validation and test tasks. Collective."""
    warning = plan.check(config, ranks)
    console = make_console(quiet=not ranks.is_main)
    tasks, held_out = load_sets(config)
    ranks.broadcast_object(lambda: check_tasks(run, tasks, held_out))
    policy, prompts = make_policy(config, ranks), make_prompts(config)
    optimizer = build.make_optimizer(config, policy)
    with (
        Preemption() as preemption,
        judge_of_node(config, ranks) as judge,
        closing(make_engine(config, policy, prompts, ranks)) as engine,
        Progress(console) as progress,
        Saver(ranks, config.trainer.save_async) as saver,
    ):
        refuse = functools.partial(too_long, prompts=prompts, room=engine.context - config.engine.max_answer_tokens)
        validating = load_validation(config)
        for line in opening.lines(config, warning, tasks, validating, held_out):
            progress.log(line)
        sampler = Sampler(tasks, config.seed, judge, progress.log, too_long=refuse, ranks=ranks)
        reference = build.make_reference(config, policy, ranks)
        own = (config, sampler, policy, prompts, engine, judge, progress, ranks)
        trainer = Trainer(*own, reference=reference, run=run, saver=saver, should_stop=preemption.should_stop)
        yield trainer, optimizer, preemption, validating, held_out


def step(trainer: Trainer, optimizer: Optimizer) -> dict[str, float]:
    """Sync weights to the engine, roll out, prepare a batch, update. Returns the step's metrics and moves the state."""
    state, timer = trainer.state, Timer()
    with timer("time/sync"):
        gap = sync(trainer)
    with timer("time/rollout"):
        played = collect(trainer)
    with timer("time/prepare"):
        trainer.engine.sleep()  # what follows scores the batch, beside an engine that has given up its memory
        prepared = prepare(trainer, played)
        completions.write_step(trainer, played, prepared)
    with timer("time/update"):
        metrics = learn(trainer, optimizer, prepared.batch, prepared.trainer_logprobs)
    skipped = state.skipped + (not update.has_learnt(metrics))
    trainer.state = dataclasses.replace(
        state, step=state.step + 1, cursor=played.cursor, groups=played.groups, ahead=played.ahead, skipped=skipped
    )
    metrics |= update_speed(trainer.policy, prepared.batch, timer.seconds["time/update"], trainer.ranks.size)
    times = {"generate": played.times.generating, "judge": played.times.waiting, "peers": played.times.peers}
    timer.seconds["time/rollout"] -= played.times.total  # what is left is the loop's own work
    seconds = timer.seconds | {f"time/{name}": value for name, value in times.items()}
    return describe_rollouts(trainer, played) | means(prepared.sums) | metrics | gap | seconds


def sync(trainer: Trainer) -> dict[str, float]:
    """Give the engine the policy's weights. Check that they arrived if it computes with kernels of its own."""
    trainer.engine.sync(trainer.policy)
    if not trainer.engine.own_kernels:
        return {}
    prompt = trainer.prompts.first(trainer.sampler.fitting())
    agreement = trainer.config.engine.agreement
    return {"engine_gap": check_agreement(trainer.engine, trainer.policy, prompt, agreement)}


def collect(trainer: Trainer) -> StepRollouts:
    """Roll out until `prompts` groups carry signal, or the refills are used up. Groups without signal are dropped, and
    those beyond `prompts`, where more were drawn: the ones that were drawn last.

    Trajectories on which the judge failed leave before that. If no group of a step carries signal, the last attempt of
    which any are left is kept whole: such a step logs a gradient of zero.

    Raises WorkerLost where the judge fails on everything.
    """
    config, state = trainer.config, trainer.state
    filters = config.filters.chosen(GROUP_FILTERS)
    played = StepRollouts(cursor=state.cursor, groups=state.groups, with_signal={name: set() for name in filters})
    judged: list[Trajectory] = []
    for attempt in range(config.filters.max_refills + 1):
        missing = config.trainer.prompts - len({trajectory.group for trajectory in played.trajectories})
        if missing == 0:
            break
        number = missing if attempt else math.ceil(missing * config.filters.oversample)
        drawn = overlap.draw_attempt(trainer, played, number, refills=attempt > 0)
        title = f"step {state.step + 1}" + (f", refill {attempt}" if attempt else "")
        sizes = config.trainer.samples, config.trainer.turns
        every, spent = play(trainer, drawn.tasks, *sizes, seed=config.seed, title=title, **drawn.options)
        overlap.keep(played, drawn)
        judged = (fresh := without_judge_failures(every)) or judged
        played.add(every, number, drawn.waited + spent, refills=attempt > 0)
        table = tabulate_rollouts(config.reward, fresh)
        alive = played.find_signal(table, filters)
        played.take(fresh, alive, missing)
    if not played.trajectories:
        played.take_any(judged, config.trainer.prompts)
    if not judged:
        raise WorkerLost(f"judge: it failed on all {len(played.every)} trajectories of step {state.step + 1}")
    return played


def prepare(trainer: Trainer, played: StepRollouts) -> Prepared:
    """Rewards, filters, returns, advantages, and one packed batch that holds all that the loss needs."""
    config, algo = trainer.config, trainer.config.algo
    rollouts = tabulate_rollouts(config.reward, played.trajectories)  # [B, T]
    uniforms = torch.rand(rollouts.turn_mask.shape, generator=generator(config.seed, trainer.state.step))
    turn_mask = rollouts.turn_mask
    if algo.drop_regressions:
        turn_mask = without_regressions(rollouts.rewarded.float(), turn_mask)
    remaining = dataclasses.replace(rollouts, turn_mask=turn_mask)  # filters compare the turns that there are
    decision = decide(config.filters.chosen(TURN_FILTERS), remaining, uniforms)
    for name, groups in played.with_signal.items():
        decision = keep_groups(rollouts, groups, name) & decision
    returns = reward_to_go(rollouts.rewards, turn_mask, algo.gamma)
    baseline = decision.in_baseline & turn_mask
    advantages = trainer.estimate_advantages(returns, turn_mask, rollouts.groups, baseline)
    trains = decision.keep & turn_mask
    batch = pack(played.trajectories, config.trainer.layout, advantages=advantages, train=trains)
    batch, mismatch, trainer_logprobs = correct_mismatch(trainer, batch)
    sums = decision.metrics | played.filter_sums | mismatch
    sums |= {"kept": mean_of(batch.loss_mask.double(), batch.turn_ids >= 0)}
    sums |= {"advantages/alone": mean_of(alone(turn_mask, rollouts.groups, baseline).double(), trains)}
    sums |= {f"trained/{name}": entry for name, entry in reward_sums(rollouts, trains).items()}
    rejected = {"drop_regressions": rollouts.turn_mask & ~turn_mask} | decision.rejected
    return Prepared(rollouts, batch, sums, advantages, rejected, trainer_logprobs)


def correct_mismatch(trainer: Trainer, batch: Batch) -> tuple[Batch, MetricSums, Tensor | None]:
    """Reject or reweigh tokens on which trainer and engine disagree (MRS, TIS); without either, no forward pass.

    Returns the batch, metrics, and the trainer's log-probabilities of all that was sampled, float32 [T].
    """
    config, algo = trainer.config, trainer.config.algo
    filters = config.filters.chosen(TOKEN_FILTERS)
    if not filters and not algo.importance_cap:
        return batch, {}, None
    sampled = dataclasses.replace(batch, loss_mask=batch.turn_ids >= 0)  # also the tokens that do not train
    trainer_logprobs = update.logprobs(trainer.policy, sampled, **trainer.pass_options)
    tokens = (trainer_logprobs, batch.rollout_logprobs, batch.turn_ids, batch.trajectory_ids, sampled.loss_mask)
    loss_mask, advantages, sums = batch.loss_mask, batch.advantages, MetricSums()
    for name, options in filters.items():
        accepted, diagnosis = TOKEN_FILTERS[name](*tokens, **options)
        loss_mask, sums = loss_mask & accepted, sums | diagnosis
    if algo.importance_cap:
        weights = importance_weights(*tokens, level=algo.importance_level, cap=algo.importance_cap)
        loss_mask, advantages = loss_mask & weights.ne(0), advantages * weights  # 0: where a ratio is not finite
    return dataclasses.replace(batch, loss_mask=loss_mask, advantages=advantages), sums, trainer_logprobs


def learn(
    trainer: Trainer, optimizer: Optimizer, batch: Batch, trainer_logprobs: Tensor | None = None
) -> dict[str, float]:
    """`algo.updates` optimizer steps on the clipped loss, each on its share of the rows.

    trainer_logprobs: what `correct_mismatch` found of the batch, which need not be scored again."""
    algo, policy, options = trainer.config.algo, trainer.policy, trainer.pass_options
    index, batch = rows_that_train(batch)
    score = lambda scorer: update.logprobs(scorer, batch, **options).to(policy.device)
    known = None if trainer_logprobs is None else trainer_logprobs[index].to(policy.device)
    old = (score(policy) if known is None else known) if algo.updates > 1 else None
    with without_adapters(trainer.reference or policy):
        reference = score(trainer.reference) if trainer.reference else None
    rate = update.learning_rate(trainer.config.policy.lr, trainer.config.trainer, trainer.state.step)
    update.set_learning_rate(optimizer, rate)
    losses, steps = [], []
    for number, (index, part) in enumerate(minibatches(batch, algo.updates)):
        still = None if number == 0 else old  # the policy has not moved yet: its ratio is exactly one
        before, origin = (None if each is None else each[index.to(policy.device)] for each in (still, reference))
        losses.append(update.PolicyLoss.of(algo, part, before, policy.device, origin))
        max_norm = trainer.config.trainer.max_grad_norm
        steps.append(update.step(policy, optimizer, part, losses[-1], max_grad_norm=max_norm, **options))
    sums = add(*(sums for loss in losses for sums in loss.metrics))
    mine = {name: entry.cpu() for name, entry in sums.items()}
    return update.merge_steps(steps) | means(add(*trainer.ranks.all_gather_object(lambda: mine))) | {"lr": rate}


def has_table(trainer: Trainer) -> bool:
    """Whether the run folder has the table of the present step. Collective."""
    run, step, config = trainer.run, trainer.state.step, trainer.config
    return bool(
        trainer.ranks.broadcast_object(lambda: run and report.is_current(run.read("report.json"), step, config))
    )


def finish(trainer: Trainer, held_out: list[Task]) -> None:
    """Export the policy, compare it on the test tasks with the one that the run began with, show both. Collective."""
    if not has_table(trainer):
        export_policy(trainer.config, trainer.policy, trainer.prompts, trainer.ranks)
        validation.compare(trainer, held_out)
    if run := trainer.run:
        report.show(run.read("report.json"), trainer.progress.console)
        report.publish(run)
    trainer.progress.log(folder_line(trainer.config))


if __name__ == "__main__":
    with one_line_errors(Config):
        main()
