"""Multi-turn reinforcement learning of a policy that writes Triton kernels.

    python train.py algo=trloo reward=profiling filters=full     one run; the same command again resumes it
    python train.py policy=qwen3_8b trainer.gpus=7               seven GPUs train (FSDP2, vLLM), the eighth measures
    python train.py stage=coldstart                              make the seed policy that the default run starts from

The algorithm is TRLOO with profiling rewards (Dr. Kernel, arXiv 2602.05885), or what the config groups choose instead:

    rollout     `samples` trajectories of `turns` turns for each of `prompts` tasks; the judge answers every turn
    reward      R = C (1 + min(s, 3) + PR) per turn, then rewards-to-go per (trajectory, turn)
    filters     groups without spread are dropped and refilled; PRS and MRS reject single turns or trajectories
    advantage   leave-one-out within each (prompt, turn)
    update      one clipped policy-gradient step over packed rows, one row per trajectory

Departures from the paper, each selectable back: coverage is a share of device time alone, so PRS has another threshold;
turns that PRS rejects leave the baseline; PR pays from a speed-up of 1 on; the loss averages over tokens. With one
optimizer step per rollout the probability ratio is 1: no pass for old log-probabilities, and clipping cannot act.

On several GPUs every rank runs this file. It plays its share of the trajectories, all ranks then know all of them and
compute the same batch, and only the forward and backward passes over that batch are shared out (training/).
"""

from __future__ import annotations

import dataclasses
import sys
import time
from contextlib import closing
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig

from drkernel import config as configuration
from drkernel.coldstart import stage as coldstart
from drkernel.config import Config
from drkernel.judge.service import longest_s
from drkernel.objective import filters, returns
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.loss import count, policy_loss, token_weights
from drkernel.objective.mismatch import importance_weights, rollout_correction
from drkernel.objective.rollouts import Rollouts, forgiven
from drkernel.objective.tally import Tally, add, mean_of, means
from drkernel.overrides import one_line_errors
from drkernel.policy.engine import Sampling
from drkernel.policy.model import load_tokenizer
from drkernel.policy.prompts import load_prompts
from drkernel.policy.transfer import check_agreement, export
from drkernel.rollout.episodes import RolloutTimes, Stopped, rollout
from drkernel.slurm.guard import SAVED
from drkernel.training import report, update
from drkernel.training.build import load_sets, make_engine, make_policy
from drkernel.training.judging import judge_of_node, pauses, reserved_gpus
from drkernel.training.packing import pack, parts, spread
from drkernel.training.preemption import Preemption
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks, init_distributed, launch
from drkernel.training.rollout_metrics import describe, tabulated, turn_filters
from drkernel.training.run import Run
from drkernel.training.sampler import Sampler
from drkernel.training.trainer import Trainer, log, resume, save, usable
from drkernel.types import Batch, Task, Trajectory


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(composed: DictConfig) -> None:
    with one_line_errors(Config):
        config = configuration.load(composed)
        if config.stage == "coldstart":
            coldstart.run(config)
        elif (code := launch(config.trainer.gpus, reserved_gpus(config))) is not None:
            sys.exit(code)
        else:
            train(config, init_distributed(reserved_gpus(config)))


def train(config: Config, ranks: Ranks) -> None:
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.trainer.threads or torch.get_num_threads())
    run, console = Run(config) if ranks.first else None, make_console(quiet=not ranks.first)
    tasks, held_out = load_sets(config)
    policy = make_policy(config, ranks)
    prompts = load_prompts(config.policy.prompts, load_tokenizer(config.policy.path))
    optimizer = update.make_optimizer(policy, config.policy.lr, config.trainer.weight_decay)
    with (
        Preemption() as preemption,
        judge_of_node(config, ranks) as judge,
        closing(make_engine(config, policy, prompts)) as engine,
        Progress(console) as progress,
    ):
        sampler = Sampler(tasks, config.seed, judge, progress.say)
        stopping = lambda: preemption.noted
        world = Trainer(config, sampler, policy, prompts, engine, judge, progress, ranks, stopping=stopping)
        resume(world, run, optimizer)
        for _ in progress.steps(world.state.step, config.trainer.steps):
            before = dataclasses.replace(world.state)
            try:
                log(world, run, step(world, optimizer))
            except Stopped:
                world.state = before
            stop = preemption.asked(ranks)
            if stop or world.state.step % config.trainer.save_every == 0 or world.state.step == config.trainer.steps:
                save(world, run, optimizer)
            if stop:
                break
        else:
            stop = preemption.asked(ranks)
        if stop:
            progress.say(f"{SAVED} {world.state.step}; the same command goes on")
            preemption.hand_over(ranks)
        else:
            preemption.release()  # all is saved: from here on a signal ends the process, and the same command goes on
            world.stopping = lambda: False
            if ranks.share(lambda: (run.read("report.json") or {}).get("step") != world.state.step):
                finish(world, run, held_out)
            if run:
                report.show(run.read("report.json"), console)
    if run:
        run.close()
    ranks.close()


def step(world: Trainer, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """One turn of the loop: weights to the engine, rollouts, what the loss needs, update."""
    clock = [time.perf_counter()]
    lap = lambda: (clock.append(time.perf_counter()), clock[-1] - clock[-2])[1]
    gap = sync(world)
    times = {"time/sync": lap()}
    world.spent, paused = RolloutTimes(), pauses(world.engine)
    trajectories, rollouts, decision = collect(world)
    spent, paused = world.spent, pauses(world.engine) - paused
    times |= {"time/generate": spent.generating - paused, "time/judge": spent.waiting + paused}
    times["time/peers"] = spent.peers
    times["time/rollout"] = lap() - spent.generating - spent.waiting - spent.peers
    batch, tally = prepare(world, trajectories, rollouts, decision)
    times["time/prepare"] = lap()
    if world.config.engine.sleep:
        world.engine.sleep()
    metrics = learn(world, optimizer, batch)
    times["time/update"] = lap()
    world.state.step += 1
    world.state.skipped += metrics["skipped"]
    return describe(rollouts) | means(tally) | metrics | gap | times


def sync(world: Trainer) -> dict[str, float]:
    """The policy's weights to the engine; where it has kernels of its own, the proof that they arrived."""
    world.engine.sync(world.policy)
    if not world.engine.own_kernels:
        return {}
    prompt = world.prompts.first(world.sampler.tasks[0])
    return {"engine_gap": check_agreement(world.engine, world.policy, prompt, world.config.engine.agreement)}


def collect(world: Trainer) -> tuple[list[Trajectory], Rollouts, filters.Decision]:
    """Roll out until `prompts` groups carry signal, or the refills are used up. Dropped groups leave the batch."""
    config, state = world.config, world.state
    options, kept = turn_filters(config), []
    refills = config.filters.zero_variance.max_refills if config.filters.zero_variance else 0
    for attempt in range(refills + 1):
        missing = config.trainer.prompts - len({t.group for t in kept})
        if missing == 0:
            break
        fresh = play(
            world,
            draw(world, missing),
            config.trainer.samples,
            config.trainer.turns,
            first_group=state.groups,
            seed=config.seed,
            title=f"step {state.step + 1}" + (f", refill {attempt}" if attempt else ""),
        )
        state.groups += missing
        if "zero_variance" in options:
            table = tabulated(config, fresh)
            only = filters.decide({"zero_variance": options["zero_variance"]}, table, torch.zeros(table.exists.shape))
            alive = set(filters.surviving_groups(only, table.groups).tolist())
            # The last attempt keeps everything if nothing else would be left: such a step logs a gradient of zero.
            last = attempt == refills and not kept and not alive
            fresh = [t for t in fresh if t.group in alive or last]
        kept += fresh
    rollouts = tabulated(config, kept)
    uniforms = torch.rand(
        rollouts.exists.shape, generator=torch.Generator().manual_seed(hash((config.seed, state.step)))
    )
    return kept, rollouts, filters.decide(options, rollouts, uniforms)


def prepare(
    world: Trainer, trajectories: list[Trajectory], rollouts: Rollouts, decision: filters.Decision
) -> tuple[Batch, Tally]:
    """Returns, mismatch rejection, advantages: everything that the loss needs, on the tokens of one packed batch."""
    config, algo = world.config, world.config.algo
    exists = rollouts.exists
    if algo.drop_regressions:
        exists = returns.without_regressions(rollouts.rewards, exists)
    batch = pack(trajectories, config.trainer.layout)
    tally = dict(decision.tally)
    keep = spread((decision.keep & exists).float(), batch).bool()
    if config.filters.mrs or algo.importance_cap:
        trained = update.logprobs(
            world.policy,
            batch,
            max_tokens=config.trainer.micro_batch_tokens,
            temperature=config.engine.temperature,
            ranks=world.ranks,
        )
        tokens = (trained, batch.rollout_logprobs, batch.turn_ids, batch.trajectory_ids, batch.loss_mask)
        if config.filters.mrs:
            accepted, diagnosis = rollout_correction(*tokens, **dataclasses.asdict(config.filters.mrs))
            keep, tally = keep & accepted, tally | diagnosis
    G = returns.reward_to_go(rollouts.rewards, exists, algo.gamma)
    estimator = "grpo_std" if algo.advantage == "grpo" and algo.std else algo.advantage
    A = ADVANTAGES[estimator](G, exists, rollouts.groups, decision.in_baseline & exists)
    batch.advantages = spread(A, batch)
    if algo.importance_cap:
        batch.advantages = batch.advantages * importance_weights(*tokens, cap=algo.importance_cap)
    batch.loss_mask = keep
    return batch, tally | {"kept": mean_of(keep.double(), batch.turn_ids >= 0)}


def learn(world: Trainer, optimizer: torch.optim.Optimizer, batch: Batch) -> dict[str, float]:
    """`algo.updates` optimizer steps on the clipped loss, each on its share of the rows."""
    algo, trainer, device = world.config.algo, world.config.trainer, world.policy.device
    tallies, steps = [], []
    options = {"max_tokens": trainer.micro_batch_tokens, "temperature": world.config.engine.temperature}
    options["ranks"] = world.ranks
    old = update.logprobs(world.policy, batch, **options).to(device) if algo.updates > 1 else None
    for index, part in parts(batch, algo.updates):
        totals = count(part.loss_mask, part.turn_ids)
        weights = token_weights(algo.aggregation, part.loss_mask, part.turn_ids, totals, algo.loss_scale).to(device)
        advantages, before = part.advantages.to(device), None if old is None else old[index.to(device)]

        def token_loss(logprobs: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            reference = logprobs.detach() if before is None else before[at]  # noqa: B023
            clip = {"clip_low": algo.clip_low, "clip_high": algo.clip_high, "dual_clip": algo.dual_clip}
            loss, tally = policy_loss(logprobs, reference, advantages[at], weights[at], **clip)  # noqa: B023
            tallies.append(tally)
            return loss

        steps.append(
            update.step(world.policy, optimizer, part, token_loss, max_grad_norm=trainer.max_grad_norm, **options)
        )
    mine = {name: entry.cpu() for name, entry in add(*tallies).items()}
    return update.over_steps(steps) | means(add(*world.ranks.each(lambda: mine)))


def draw(world: Trainer, number: int) -> list[Task]:
    """The next prompts whose reference the judge can use, the same for all ranks."""
    state, started = world.state, time.perf_counter()
    picked, state.cursor = world.ranks.share(lambda: world.sampler.draw(state.cursor, number))
    world.spent.waiting += time.perf_counter() - started
    return picked


def play(
    world: Trainer, tasks: list[Task], samples: int, turns: int, *, first_group: int, seed: int, title: str
) -> list[Trajectory]:
    """Multi-turn episodes: `samples` per task, shared out among ranks; generation and judging overlap.

    Raises Stopped on all ranks where a signal came to one of them meanwhile.
    """
    config, ranks = world.config, world.ranks
    # The judge works beside the engine: a thread that waits for a core it has taken would stop all the others.
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - config.judge.workers))
    try:
        mine = rollout(
            world.engine,
            world.judge,
            world.prompts,
            tasks,
            samples_per_task=samples,
            turns=turns,
            max_tokens=config.engine.max_answer_tokens,
            seed=seed,
            feedback_limit=config.judge.feedback_tokens,
            first_group=first_group,
            sampling=Sampling(temperature=config.engine.temperature),
            on_progress=world.progress.rollout(title),
            share=(ranks.rank, ranks.size),
            stop=world.stopping,
            told=(lambda verdict: verdict) if config.reward.hack_check else forgiven,
            deadline_s=2 * longest_s(config.judge.timeout_s) + 300,  # the judge gives up before that
            spent=world.spent,
        )
    except Stopped:
        mine = None
    played = time.perf_counter()
    stopped = ranks.any(mine is None)
    world.spent.peers += time.perf_counter() - played
    if stopped:
        raise Stopped
    torch.set_num_threads(threads)
    return sorted(ranks.gather(mine), key=lambda t: (t.group, t.sample))


def finish(world: Trainer, run: Run | None, held_out: list[Task]) -> None:
    """Export the policy, then compare it with the one that the run began with on tasks it never trained on.

    Hacks count as hacks here, whatever they earned in training.
    """
    ranks, config = world.ranks, world.config
    config = dataclasses.replace(config, reward=dataclasses.replace(config.reward, hack_check=True))
    world = dataclasses.replace(world, config=config)
    turns = config.trainer.eval_turns or config.trainer.turns
    held_out = ranks.share(lambda: usable(world, held_out))
    export(world.policy, Path(config.run_dir) / "policy", world.prompts.tokenizer)
    tables = []
    for name, policy in (("before", make_policy(config, ranks)), ("after", world.policy)):
        world.engine.sync(policy)
        title = f"test split, {name}"
        episodes = play(world, held_out, config.trainer.eval_samples, turns, first_group=0, seed=-1, title=title)
        tables.append(tabulated(config, episodes))
    sizes = f"{len(held_out)} tasks x {config.trainer.eval_samples} samples x {turns} turns"
    if run:
        report.write(run, world.state.step, *tables, title=f"{sizes}, compositions that training never saw")


if __name__ == "__main__":
    with one_line_errors(Config):
        main()
