"""A test-time scaling study: how much better kernels get when a model may try more, and how its tries are best spent.

    python evaluate.py                                            the shipped policy on the generator's test split
    python evaluate.py policy=qwen3_8b scaling=managed scaling.budget=16 tasks=kernelbench
    python evaluate.py policy.path=outputs/train/default/policy scaling=parallel scaling.trials=3
    python evaluate.py endpoint.url=http://localhost:8000/v1      a hosted model, its key in OPENAI_API_KEY
    python evaluate.py solutions=FOLDER tasks=kernelbench         answers made elsewhere, under the same judge
    python evaluate.py compare=[runA,runB]                        finished studies, paired task by task

A strategy (conf/scaling/) spends a budget of judge calls on every task: single, parallel, sequential, managed, mixture.
Each turn is a line of results.jsonl in the run folder, written as soon as it is judged; the same command goes on where
it was stopped, and ends with the report: report/index.html, table.md, table.csv, and the table here.

On several GPUs `trainer.gpus=8` starts 8 engines, each with a share of the tasks. Over several machines `shard=0/4` to
`shard=3/4` play a part each; the same command without a shard then collects them, plays what is missing, and reports.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig

from drkernel.config import REPOSITORY
from drkernel.overrides import one_line_errors
from drkernel.policy.endpoint import ChatEndpoint
from drkernel.policy.engine import Sampling
from drkernel.policy.model import Policy, load_tokenizer
from drkernel.policy.prompts import load_prompts
from drkernel.rollout import RolloutProgress
from drkernel.scaling import records, report, settings, solutions, study
from drkernel.scaling.chat import ChatModel
from drkernel.scaling.models import Model, TokenModel
from drkernel.scaling.settings import EvaluateConfig
from drkernel.scaling.strategies import Strategy
from drkernel.tasks import load_tasks
from drkernel.training.build import make_engine
from drkernel.training.judging import judge_of_node, measured_on, reserved_gpus
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks, init_distributed, launch
from drkernel.training.rollout_metrics import make_reward
from drkernel.types import DrKernelError, Task, Verdict


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(composed: DictConfig) -> None:
    with one_line_errors(EvaluateConfig):
        config = settings.load(composed)
        reserved = [] if config.endpoint.url or config.solutions or config.compare else reserved_gpus(config)
        if config.compare:
            folders = [Path(folder) for folder in config.compare]
            names = " against ".join(folder.name for folder in folders)
            conclude(config, folders, names if len(folders) < 4 else f"{len(folders)} studies compared")
        elif (code := launch(config.trainer.gpus, reserved)) is not None:
            sys.exit(code)
        else:
            evaluate(config, init_distributed(reserved))


def evaluate(config: EvaluateConfig, ranks: Ranks) -> None:
    """Play what is missing of this rank's share of the tasks; the first rank of an unsharded study then reports."""
    folder, tasks = Path(config.run_dir), load_set(config)
    number, shards = settings.shard(config)
    number, shards = number + shards * ranks.rank, shards * ranks.size
    inner = folder / "shards" / f"{number}-of-{shards}" if shards > 1 else folder
    inner.mkdir(parents=True, exist_ok=True)
    ranks.broadcast_object(lambda: settings.keep(config, inner if config.shard else folder, tasks, identity(config)))
    known, path = ranks.broadcast_object(lambda: study.known(folder)), inner / records.RESULTS
    with judge_of_node(config, ranks) as judge, Progress(make_console(quiet=not ranks.is_main)) as progress:
        options = {"known": known, "say": progress.log, "on_progress": follow(progress, f"{len(tasks)} tasks")}
        if config.solutions:
            given = solutions.load(config.solutions, tasks, progress.log)[number::shards]
            study.judge_solutions(tasks, given, judge, path, label=name_of(config), **options)
        else:
            options |= {"seed": config.seed, "trials": config.scaling.trials, "reward": worth(config)}
            with model_of(config, ranks, progress.log) as model:
                study.play(tasks[number::shards], Strategy(config.scaling), model, judge, path, **options)
        ranks.barrier()  # the first rank of a node lends its judge to the others until all are done
    if ranks.is_main and not config.shard:
        study.merge(folder)
        strategy = study.SOLUTIONS if config.solutions else Strategy(config.scaling).label
        conclude(config, [folder], f"{name_of(config)}, {strategy}")
    ranks.close()


def load_set(config: EvaluateConfig) -> list[Task]:
    """The tasks of the study, in a fixed order."""
    options = config.tasks
    source = options.eval_source or options.source
    split = "all" if options.eval_source and source != "generated" and config.split == "test" else config.split
    chosen = {"levels": options.levels, "families": options.families, "seed": options.seed}
    count = None if config.ids and source != "generated" else options.eval_count
    tasks = load_tasks(source, split=split, count=count, on_skip=print, **chosen)
    if config.ids:
        tasks = [task for task in tasks if any(fnmatchcase(task.id, pattern) for pattern in config.ids)]
    if not tasks:
        raise DrKernelError(f"ids={config.ids}: no task of {source} has such an id")
    return tasks


def identity(config: EvaluateConfig) -> dict[str, str]:
    """What answers and what judges, as far as the config alone does not say it."""
    found = {"device": measured_on(config.judge)}
    if config.endpoint.url and not config.solutions:
        with endpoint_of(config) as endpoint:
            found["model"] = endpoint.model
    elif not config.solutions:
        found["weights"] = settings.fingerprint(config.policy.path)
    return found


def endpoint_of(config: EvaluateConfig) -> ChatEndpoint:
    options = dataclasses.asdict(config.endpoint)
    del options["max_answer_tokens"], options["feedback_tokens"]
    return ChatEndpoint(**options)


@contextlib.contextmanager
def model_of(config: EvaluateConfig, ranks: Ranks, say: Callable[[str], None]) -> Iterator[Model]:
    """The endpoint where there is one, else the policy in an engine of this rank."""
    sampling = Sampling(temperature=config.engine.temperature, top_p=config.top_p)
    if config.endpoint.url:
        limits = {"max_tokens": config.endpoint.max_answer_tokens, "feedback_limit": config.endpoint.feedback_tokens}
        with endpoint_of(config) as endpoint:
            yield ChatModel(config.label or endpoint.model, endpoint, sampling=sampling, **limits)
            refused = f"; the server does not take {', '.join(sorted(endpoint.not_sent))}" if endpoint.not_sent else ""
            say(f"{endpoint.model}: {endpoint.usage}{refused}")
        return
    torch.set_num_threads(max(1, (config.trainer.threads or torch.get_num_threads()) - config.judge.workers))
    path, dtype = config.policy.path, torch.bfloat16 if ranks.device.type == "cuda" else torch.float32
    prompts = load_prompts(config.policy.prompts, load_tokenizer(path))
    limits = {"max_tokens": config.engine.max_answer_tokens, "feedback_limit": config.judge.feedback_tokens}
    with closing(make_engine(config, Policy.load(path, dtype, str(ranks.device)), prompts)) as engine:
        yield TokenModel(name_of(config), engine, prompts, slots=config.engine.slots, sampling=sampling, **limits)


def name_of(config: EvaluateConfig) -> str:
    """What reports call whatever answers."""
    elsewhere = Path(config.solutions).name if config.solutions else config.endpoint.model or config.endpoint.url
    return config.label or elsewhere or config.policy.path.removeprefix(f"{REPOSITORY}/")


def worth(config: EvaluateConfig) -> Callable[[Verdict], float]:
    """What the config says a verdict is worth."""
    reward = make_reward(config.reward)
    tensor = lambda value: torch.tensor(value or 0.0)
    return lambda v: reward(torch.tensor(v.ok), tensor(v.speedup), tensor(v.coverage)).item()


def follow(progress: Progress, title: str) -> Callable[[RolloutProgress], None]:
    """A bar on a terminal; elsewhere a line now and then, with the time left."""
    bar, started, told, before = progress.rollout(title), time.monotonic(), [time.monotonic()], []

    def show(state: RolloutProgress) -> None:
        bar(state)
        before[:] = before or [state.turns_done]
        now, played = time.monotonic(), state.turns_done - before[0]
        if progress.console.is_terminal or now - told[0] < 30 or not played:
            return
        told[0] = now
        left = (state.turns_total - state.turns_done) * (now - started) / played / 60
        progress.log(f"{state.turns_done} of {state.turns_total} turns, about {left:.1f} min left")

    return show


def conclude(config: EvaluateConfig, folders: list[Path], title: str) -> None:
    """The report on one study, or on several side by side; the first one is what the others are compared with."""
    for folder in folders:
        path = folder / records.RESULTS
        if not path.exists():
            raise DrKernelError(f"{folder}: no {records.RESULTS} there, expected the folder of a finished study")
        if not path.stat().st_size:
            why = "every task or answer was passed over, for the reasons that were told"
            raise DrKernelError(f"{path}: no judged turn in it ({why}); expected at least one")
    if config.report:
        report.write(folders, Path(config.run_dir) / "report", title)
        report.show(folders, make_console())


if __name__ == "__main__":
    with one_line_errors(EvaluateConfig):
        main()
