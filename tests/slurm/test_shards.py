"""A study in three shards on a real Slurm, one of which is killed: together exactly what one job makes of it."""

import time

import pytest

from drkernel.scaling.records import RESULTS
from tests import commands
from tests.test_evaluate import content

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

STUDY = ["tasks.eval_count=6", "scaling.budget=3", "scaling.trials=2", "engine.slots=8", "trainer.threads=1"]
STUDY += ["judge.workers=1", "tasks.families=[elementwise]"]  # short answers
SHARDS = ["hydra/launcher=slurm_local", "shard=0/3,1/3,2/3", "hydra.launcher.partition=urgent"]
VICTIM = "shards/1-of-3"


def evaluate(cluster, *arguments: str) -> str:
    done = commands.run(["evaluate.py", *arguments, *STUDY], environment=cluster.environment, timeout=600)
    assert done.returncode == 0, done.output
    return done.stdout


def finished(cluster) -> bool:
    cluster.hurry()
    return not cluster.ask("squeue", "-h")


def until(ready, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_three_shards_one_of_them_killed_merge_into_the_result_of_one_job(cluster, tmp_path):
    shards, whole = tmp_path / "shards", tmp_path / "whole"
    submit = ["-m", f"hydra.sweep.dir={shards}", "hydra.sweep.subdir=study", *SHARDS]
    assert "3 runs submitted" in evaluate(cluster, *submit)
    study = shards / "study"
    results = study / VICTIM / RESULTS
    until(results.exists)
    job = cluster.ask("squeue", "-h", "-r", "-o", "%A %i").splitlines()
    cluster.kill_task(next(line.split()[0] for line in job if line.endswith("_1")), 0)
    before = results.read_bytes()
    evaluate(cluster, f"hydra.run.dir={whole}")
    until(lambda: finished(cluster))
    assert results.read_bytes().startswith(before[: before.rfind(b"\n") + 1]), "what was judged is not judged again"
    assert len((results.parent / "starts.jsonl").read_text().splitlines()) == 2
    assert "0 runs submitted" in evaluate(cluster, *submit)
    parts = {path.parent.name: len(path.read_text().splitlines()) for path in study.glob(f"shards/*/{RESULTS}")}
    evaluate(cluster, f"hydra.run.dir={study}")
    assert list(content(study).items()) == list(content(whole).items()), "the same turns in the same order"
    assert sum(parts.values()) == len(content(whole)), "every turn was judged in one shard, and once"
    timeless = [
        [line for line in (folder / "report/table.csv").read_text().splitlines() if "seconds" not in line]
        for folder in (study, whole)
    ]
    assert timeless[0] == timeless[1]
