"""Multi-turn reinforcement learning of a policy that writes Triton kernels.

    python train.py algo=trloo reward=profiling filters=full     one run; the same command again resumes it
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
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from dataclasses import dataclass, field

import hydra
import torch
from omegaconf import DictConfig

from drkernel import config as configuration
from drkernel.coldstart import stage as coldstart
from drkernel.config import Config
from drkernel.judge import Judge
from drkernel.objective import filters, returns
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.loss import count, policy_loss, token_weights
from drkernel.objective.mismatch import importance_weights, rollout_correction
from drkernel.objective.rollouts import Rollouts
from drkernel.objective.tally import Tally, add, mean_of, means
from drkernel.policy import load_engine
from drkernel.policy.engine import Engine, Sampling
from drkernel.policy.model import Policy, load_tokenizer
from drkernel.policy.prompts import Prompts, load_prompts
from drkernel.rollout.episodes import rollout
from drkernel.tasks import load_tasks
from drkernel.training import checkpoint, report, update
from drkernel.training.experience import describe, tabulated, turn_filters
from drkernel.training.packing import pack, parts, spread
from drkernel.training.progress import Progress, make_console
from drkernel.training.run import Run
from drkernel.types import Batch, DrKernelError, Task, Trajectory


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(composed: DictConfig) -> None:
    with configuration.one_line_errors():
        config = configuration.load(composed)
        (coldstart.run if config.stage == "coldstart" else train)(config)


@dataclass
class State:
    """Where a run stands, besides weights and optimizer: all that the next step depends on."""

    step: int = 0
    cursor: int = 0  # tasks drawn so far
    groups: int = 0  # groups rolled out so far
    skipped: int = 0  # steps without an update
    wandb_id: str | None = None
    metrics_offset: int = 0


@dataclass
class World:
    """What a run is made of; built once in `train`."""

    config: Config
    tasks: list[Task]
    policy: Policy
    prompts: Prompts
    engine: Engine
    judge: Judge
    progress: Progress
    state: State = field(default_factory=State)
    unusable: dict[str, str] = field(default_factory=dict)  # task id -> why the judge refuses it


def train(config: Config) -> None:
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.trainer.threads or torch.get_num_threads())
    run, console = Run(config), make_console()
    tasks, held_out = load_sets(config)
    policy = Policy.load(config.policy.path, device="cuda" if torch.cuda.is_available() else "cpu")
    prompts = load_prompts(config.policy.prompts, load_tokenizer(config.policy.path))
    optimizer = update.make_optimizer(policy, config.policy.lr, config.trainer.weight_decay)
    with (
        Judge(**configuration.judge_options(config)) as judge,
        closing(load_engine(policy=policy, stop_ids=prompts.stop_ids, **engine_options(config))) as engine,
        Progress(console) as progress,
    ):
        world = World(config, tasks, policy, prompts, engine, judge, progress)
        resume(world, run, optimizer)
        for _ in progress.steps(world.state.step, config.trainer.steps):
            log(world, run, step(world, optimizer))
            if world.state.step % config.trainer.save_every == 0 or world.state.step == config.trainer.steps:
                save(world, run, optimizer)
        if (run.read("report.json") or {}).get("step") != world.state.step:
            finish(world, run, held_out)
    report.show(run.read("report.json"), console)
    run.close()


def step(world: World, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """One turn of the loop: weights to the engine, rollouts, what the loss needs, update."""
    started = time.perf_counter()
    world.engine.sync(world.policy)
    trajectories, rollouts, decision = collect(world)
    generated = time.perf_counter()
    batch, tally = prepare(world, trajectories, rollouts, decision)
    metrics = learn(world, optimizer, batch)
    world.state.step += 1
    world.state.skipped += metrics["skipped"]
    times = {"time/rollout": generated - started, "time/update": time.perf_counter() - generated}
    return describe(rollouts) | means(tally) | metrics | times


def collect(world: World) -> tuple[list[Trajectory], Rollouts, filters.Decision]:
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
    world: World, trajectories: list[Trajectory], rollouts: Rollouts, decision: filters.Decision
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
            world.policy, batch, max_tokens=config.trainer.micro_batch_tokens, temperature=config.engine.temperature
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


def learn(world: World, optimizer: torch.optim.Optimizer, batch: Batch) -> dict[str, float]:
    """`algo.updates` optimizer steps on the clipped loss, each on its share of the rows."""
    algo, trainer, device, tallies = world.config.algo, world.config.trainer, world.policy.device, []
    options = {"max_tokens": trainer.micro_batch_tokens, "temperature": world.config.engine.temperature}
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

        metrics = update.step(world.policy, optimizer, part, token_loss, max_grad_norm=trainer.max_grad_norm, **options)
    return metrics | means(add(*tallies))


def draw(world: World, number: int) -> list[Task]:
    """The next prompts: a fresh permutation of the tasks each epoch, a pure function of (seed, how many were drawn).

    A task that the judge cannot use is reported once and passed over; none that it can is an error.
    """
    state, tasks, picked = world.state, world.tasks, []
    while len(picked) < number:
        epoch, offset = divmod(state.cursor, len(tasks))
        order = torch.randperm(len(tasks), generator=torch.Generator().manual_seed(hash((world.config.seed, epoch))))
        task = tasks[order[offset]]
        state.cursor += 1
        try:
            world.judge.check_task(task)
        except DrKernelError as error:
            world.unusable[task.id] = str(error)
            world.progress.say(f"passed over: {error}")
            if len(world.unusable) == len(tasks):
                raise
            continue
        picked.append(task)
    return picked


def load_sets(config: Config) -> tuple[list[Task], list[Task]]:
    """Training tasks and held-out ones; a benchmark of its own (`tasks.eval_source`) is held out whole."""
    options, chosen = config.tasks, {"levels": config.tasks.levels, "families": config.tasks.families}
    tasks = load_tasks(options.source, split="train", count=options.count, seed=options.seed, **chosen)
    source = options.eval_source or options.source
    split = "test" if source in (options.source, "generated") else "all"
    held_out = load_tasks(source, split=split, count=options.eval_count, **chosen)
    return tasks, held_out


def engine_options(config: Config) -> dict:
    options = config.engine
    return {
        "name": options.name,
        "slots": options.slots,
        "context": options.max_tokens,
        "kv_cache_gib": options.kv_cache_gib,
    }


def play(world: World, tasks: list[Task], samples: int, *, first_group: int, seed: int, title: str) -> list[Trajectory]:
    """Multi-turn episodes: `samples` per task; generation and judging overlap."""
    config = world.config
    # The judge works beside the engine: a thread that waits for a core it has taken would stop all the others.
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - config.judge.workers))
    trajectories = rollout(
        world.engine,
        world.judge,
        world.prompts,
        tasks,
        samples_per_task=samples,
        turns=config.trainer.turns,
        max_tokens=config.engine.max_answer_tokens,
        seed=seed,
        feedback_limit=config.judge.feedback_tokens,
        first_group=first_group,
        sampling=Sampling(temperature=config.engine.temperature),
        on_progress=world.progress.rollout(title),
    )
    torch.set_num_threads(threads)
    return trajectories


def log(world: World, run: Run, metrics: dict[str, float]) -> None:
    state = world.state
    run.log(state.step, metrics | {"tasks_drawn": state.cursor, "skipped_total": state.skipped})
    shown = "  ".join(f"{name} {metrics[name]:.2f}" for name in ("reward", "correct", "fast@1.2", "hacks", "lazy"))
    seconds = metrics["time/rollout"] + metrics["time/update"]
    world.progress.say(f"step {state.step}/{world.config.trainer.steps}  {shown}  ({seconds:.0f} s)")


def save(world: World, run: Run, optimizer: torch.optim.Optimizer) -> None:
    world.state.metrics_offset = run.metrics_offset
    state = {
        "policy": world.policy.state_dict(),
        "optimizer": optimizer.state_dict(),
        "state": dataclasses.asdict(world.state),
    }
    checkpoint.save(run.path / "checkpoints", world.state.step, state, world.config.trainer.keep)


def resume(world: World, run: Run, optimizer: torch.optim.Optimizer) -> None:
    """Go on from the newest checkpoint of this run folder, if there is one."""
    saved = checkpoint.load_latest(run.path / "checkpoints")
    if saved:
        world.policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        world.state = State(**saved["state"])
        world.progress.say(f"resumed {run.path} at step {world.state.step}")
    run.rewind(world.state.metrics_offset)
    world.state.wandb_id = run.start_wandb(world.state.wandb_id)


def finish(world: World, run: Run, held_out: list[Task]) -> None:
    """Export the policy, then compare it with the one that the run began with on tasks it never trained on."""
    config = world.config
    world.policy.save(run.path / "policy", world.prompts.tokenizer)
    tables = []
    beginning = Policy.load(config.policy.path, device=str(world.policy.device))
    for name, policy in (("before", beginning), ("after", world.policy)):
        world.engine.sync(policy)
        title = f"test split, {name}"
        episodes = play(world, held_out, config.trainer.eval_samples, first_group=0, seed=-1, title=title)
        tables.append(tabulated(config, episodes))
    sizes = f"{len(held_out)} tasks x {config.trainer.eval_samples} samples x {config.trainer.turns} turns"
    report.write(run, world.state.step, *tables, title=f"{sizes}, compositions that training never saw")


if __name__ == "__main__":
    with configuration.one_line_errors():
        main()
