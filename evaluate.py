"""A test-time scaling study: how much better kernels get when a model may try more, and how its tries are best spent.

    python evaluate.py                                            the shipped policy on the generator's test split
    python evaluate.py policy=qwen3_8b scaling=managed scaling.budget=16 tasks=kernelbench
    python evaluate.py policy.path=outputs/train/default/policy scaling=parallel scaling.trials=3
    python evaluate.py endpoint.url=http://localhost:8000/v1      a hosted model, its key in OPENAI_API_KEY
    python evaluate.py solutions=FOLDER tasks=kernelbench         solutions made elsewhere, under the same judge
    python evaluate.py compare=[runA,runB]                        finished studies, paired task by task

A strategy (conf/scaling/) spends a budget of judge calls on every task: single, parallel, sequential, managed, mixture.
Each turn is a line of results.jsonl in the run folder, written as soon as it is judged. The same command goes on where
it was stopped. It ends with the report: report/index.html, table.md, table.csv, and a table in the terminal.

On several GPUs `trainer.gpus=8` starts 8 engines, each with an equal part of the tasks. On several machines `shard=0/4`
to `shard=3/4` play a part each. The same command without a shard then collects them, plays what is missing, and writes
the report.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from drkernel.config import EvaluateConfig, load_study, one_line_errors
from drkernel.config.study import shard
from drkernel.scaling import records, report, solutions, study, study_folder
from drkernel.scaling.setup import identity, model_label, open_model, progress_callback, study_tasks, verdict_reward
from drkernel.scaling.strategies import Strategy
from drkernel.tasks.precision import summary
from drkernel.training.judging import described, judge_of_node, reserved_gpus
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks, init_distributed, launch
from drkernel.training.run import make_folder
from drkernel.types import DrKernelError


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(composed: DictConfig) -> None:
    with one_line_errors(EvaluateConfig):
        config = load_study(composed)
        reserved = reserved_gpus(config)
        if config.compare:
            folders = [Path(folder) for folder in config.compare]
            names = " against ".join(study_folder.labels(folders))
            write_report(config, folders, names if len(folders) < 4 else f"{len(folders)} studies compared")
        elif (code := launch(config.trainer.gpus, reserved)) is not None:
            sys.exit(code)
        else:
            evaluate(config, init_distributed(reserved))


def evaluate(config: EvaluateConfig, ranks: Ranks) -> None:
    """Plays what is missing of this rank's tasks. The first rank of an unsharded study then writes the report."""
    folder, tasks = Path(config.run_dir), study_tasks(config)
    number, shards = shard(config)
    number, shards = number + shards * ranks.rank, shards * ranks.size
    own = folder / "shards" / f"{number}-of-{shards}" if shards > 1 else folder
    make_folder(own)
    ranks.broadcast_object(lambda: study_folder.keep(config, own if config.shard else folder, tasks, identity(config)))
    known, path = ranks.broadcast_object(lambda: study.known(folder)), own / records.RESULTS
    with judge_of_node(config, ranks) as judge, Progress(make_console(quiet=not ranks.is_main)) as progress:
        progress.log(f"study folder: {config.run_dir}")
        progress.log(described(config))
        progress.log(f"precision of tasks: {summary(tasks)}")
        on_progress = progress_callback(progress, f"{len(tasks)} tasks")
        given = solutions.load(config.solutions, tasks, progress.log) if config.solutions else None
        if given is not None:
            study.judge_solutions(
                tasks,
                given,
                judge,
                path,
                label=model_label(config),
                shard=(number, shards),
                known=known,
                log=progress.log,
                on_progress=on_progress,
            )
        else:
            with open_model(config, ranks, progress.log) as model:
                study.play(
                    tasks[number::shards],
                    Strategy(config.scaling),
                    model,
                    judge,
                    path,
                    reward=verdict_reward(config),
                    seed=config.seed,
                    trials=config.scaling.trials,
                    known=known,
                    log=progress.log,
                    on_progress=on_progress,
                )
        ranks.barrier()  # the first rank of a node lends its judge to the others until all are done
    if ranks.is_main and not config.shard:
        study.merge(folder, given)
        strategy = study.SOLUTIONS if config.solutions else Strategy(config.scaling).label
        write_report(config, [folder], f"{model_label(config)}, {strategy}")
    ranks.close()


def write_report(config: EvaluateConfig, folders: list[Path], title: str) -> None:
    """The report on one study, or on several side by side; the first one is what the others are compared with."""
    for folder in folders:
        path = folder / records.RESULTS
        if not path.exists():
            raise DrKernelError(f"{folder}: no {records.RESULTS} there, expected the folder of a finished study")
        if not path.stat().st_size:
            why = "every task or solution was passed over, for the reasons given above"
            raise DrKernelError(f"{path}: no judged turn in it ({why}); expected at least one")
    if config.report:
        report.write(folders, Path(config.run_dir) / "report", title)
        console = make_console()
        report.show(folders, console)
        console.print(f"report: {Path(config.run_dir) / 'report' / 'index.html'}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    with one_line_errors(EvaluateConfig):
        main()
