"""A sweep of real trainings, two ranks each, on a real Slurm: whatever happens to a run, it ends as if nothing had.

All runs have the same configuration but for wandb and its project's name, so that each must end with the numbers of the
one that nobody disturbed.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drkernel.slurm import queue
from drkernel.training.metric_names import repeats
from slurm.local.cluster import Cluster
from sweeps import state
from tests import commands

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

SMALL = ["trainer.prompts=2", "trainer.samples=2", "trainer.turns=2", "trainer.steps=3", "trainer.save_every=1"]
SMALL += ["engine.slots=8", "tasks.count=8", "tasks.eval_count=2", "trainer.eval_samples=1", "trainer.eval_turns=1"]
SMALL += ["tasks.families=[elementwise]", "seed=4"]  # short answers; a group is refilled in each step
SMALL += ["trainer.threads=1", "judge.workers=1"]
SMALL += ["hydra.launcher.tasks_per_node=2"]
PATIENCE_S = 900
CPUS = 10


def on(node: str) -> list[str]:
    return [f"+hydra.launcher.additional_parameters.nodelist={node}"]


def submit(cluster: Cluster, folder: Path, *overrides: str) -> str:
    command = ["train.py", "-m", "hydra/launcher=slurm_local", f"hydra.sweep.dir={folder}"]
    environment = cluster.environment | {"OMP_NUM_THREADS": "1"}
    done = commands.run([*command, *SMALL, *overrides], environment=environment, timeout=120)
    assert done.returncode == 0, done.output
    return done.stdout


@dataclass
class Scene:
    """The sweep, and what is done to its runs while they go on."""

    cluster: Cluster
    folder: Path
    log: list[str] = field(default_factory=list)
    urgent: bool = False
    """Whether the run `preempted` has to go."""

    def run(self, name: str) -> state.RunState:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", self.cluster.environment["SLURM_CONF"])
            runs = state.look(self.folder)
        return next(run for run in runs if f"logger.project={name}" in run.overrides)

    def until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            self.cluster.hurry()
            self._insist()
            queue = self.cluster.ask("squeue", "-h")
            assert (queue and time.monotonic() < deadline) or ready(), f"waited for {what}; {queue}; {self.logs()}"
            time.sleep(0.5)
        self.log.append(what)

    def logs(self) -> str:
        logs = [*sorted(self.folder.glob(".submitit/*/*.out")), self.cluster.folder / "slurmctld.log"]
        return "\n".join(f"{log}:\n{log.read_text()[-1500:]}" for log in logs)

    def under_way(self, name: str) -> bool:
        """It has a checkpoint, and steps left."""
        run = self.run(name)
        return run.state == "running" and 0 < run.step < 3

    def fields(self, name: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S+)", self.cluster.ask("scontrol", "show", "job", "-o", self.run(name).job)))

    def partitions(self, state: str) -> None:
        for name in ("local", "urgent"):
            self.cluster.ask("scontrol", "update", f"PartitionName={name}", f"State={state}")

    def preempt(self) -> None:
        """A job of the urgent partition that has to have one of this run's CPUs, unless another run ends just now."""
        self.urgent = True
        taken = self.cluster.ask("squeue", "-h", "-t", "R,CG", "-w", "n2", "-o", "%C %D").splitlines()
        idle = CPUS - sum(int(cpus) // int(nodes) for cpus, nodes in map(str.split, taken))
        options = ["-p", "urgent", "-N", "1", "-w", "n2", "-n", str(idle + 1), "-o", "/dev/null", "-J", "urgent"]
        self.cluster.ask("sbatch", *options, "--wrap", "sleep 2")

    def _insist(self) -> None:
        """An urgent job that has found the CPUs of another run is followed by one more."""
        if self.urgent and self.under_way("preempted") and not self.cluster.ask("squeue", "-h", "-n", "urgent"):
            self.urgent = self.fields("preempted")["Restarts"] == "0"
            if self.urgent:
                self.preempt()

    def warn_of_the_limit(self) -> None:
        """The signal that Slurm sends before the time limit, which is too far off for Slurm to send it meanwhile."""
        self.cluster.ask("scancel", "-s", "USR2", self.fields("warned")["JobId"])

    def restart_controller(self) -> None:
        self.cluster.stop_controller()
        time.sleep(3)
        self.cluster.start_controller()


ON_BOTH_NODES = ["hydra.launcher.nodes=2", "hydra.launcher.tasks_per_node=1"]
RUNS = {
    "calm,killed": ["logger=none", "hydra.launcher.partition=urgent", *on("n2")],
    "warned": ["logger=none", "hydra.launcher.partition=urgent", *on("n2")],
    "preempted": ["logger=offline", "hydra.launcher.partition=local", *on("n2")],
    "nodes": ["logger=none", "hydra.launcher.partition=urgent", *ON_BOTH_NODES],
}
"""Nothing in the partition `urgent` is preempted. Only `nodes` is on n1, its batch script too."""


@pytest.fixture(scope="module")
def scene(cluster, tmp_path_factory):
    made = Scene(cluster, tmp_path_factory.mktemp("sweep"))
    made.partitions("DOWN")
    for name, overrides in RUNS.items():
        submit(cluster, made.folder, *overrides, f"logger.project={name}")
    made.partitions("UP")  # now they start together
    events = {
        "lose a node": (lambda: made.under_way("nodes"), lambda: cluster.kill_node("n1")),
        "kill a rank": (lambda: made.under_way("killed"), lambda: cluster.kill_task(made.fields("killed")["JobId"], 1)),
        "warn of the time limit": (lambda: made.under_way("warned"), made.warn_of_the_limit),
        "restart the controller": (lambda: made.under_way("warned"), made.restart_controller),
        "preempt": (lambda: made.under_way("preempted"), made.preempt),
        "give the node back": (lambda: made.run("nodes").state == "requeued", lambda: cluster.start_node("n1")),
    }
    while events:
        made.until(lambda: any(due() for due, _ in events.values()), f"time to {' or '.join(events)}")
        name = next(name for name, (due, _) in events.items() if due())
        events.pop(name)[1]()
        made.log.append(name)
    made.until(lambda: cluster.ask("squeue", "-h") == "", "an empty queue")
    return made


DISTURBED = ("preempted", "warned", "killed", "nodes")


def metrics(run: state.RunState) -> list[dict]:
    return [{key: value for key, value in line.items() if repeats(key)} for line in run.metrics]


@pytest.mark.parametrize("name", ["calm", *DISTURBED])
def test_every_run_is_done_and_has_each_step_once(scene, name):
    run = scene.run(name)
    assert run.state == "done", (run, scene.logs())
    assert [line["step"] for line in run.metrics] == [1, 2, 3]


@pytest.mark.parametrize("name", DISTURBED)
def test_a_disturbed_run_started_again_and_ends_with_the_numbers_of_the_undisturbed_one(scene, name):
    calm, run = scene.run("calm"), scene.run(name)
    assert calm.starts == 1 and run.starts > 1
    assert metrics(run) == metrics(calm)
    assert run.report == calm.report


def test_each_came_back_in_its_own_way(scene):
    logs = {name: scene.folder / ".submitit" / scene.run(name).job for name in DISTURBED}
    text = {name: "".join(p.read_text() for p in sorted(folder.glob("*.out"))) for name, folder in logs.items()}
    assert "stopped by a signal" in text["preempted"] and "guard" not in text["preempted"]
    assert "stopped by a signal" in text["warned"]
    assert "--signal=USR2@60" in next(logs["warned"].glob("*.sh")).read_text(), "Slurm itself would have, in time"
    assert "guard: started again" in text["killed"] and "Killed" in text["killed"]
    starts = [
        json.loads(line)["slurm"] for line in (scene.run("nodes").folder / "starts.jsonl").read_text().splitlines()
    ]
    assert [start["SLURM_JOB_NODELIST"] for start in starts] == ["n[1-2]"] * len(starts)
    assert starts[1]["SLURM_RESTART_COUNT"] == "1", "Slurm itself started it again"


def test_a_run_that_starts_again_goes_on_in_its_own_wandb_run(scene):
    run = scene.run("preempted")
    started = [path.name for path in (run.folder / "wandb").glob("offline-run-*")]
    assert len(started) == run.starts > 1
    assert len({name.rpartition("-")[2] for name in started}) == 1


def test_jobs_run_the_code_as_it_was_when_they_were_submitted(scene):
    start = json.loads((scene.run("calm").folder / "starts.jsonl").read_text().splitlines()[0])
    assert Path(start["command"][0]).parents[1] == scene.folder / ".code"
    assert start["commit"] and start["slurm"]["SLURM_JOB_ID"]


def test_the_same_command_again_submits_nothing_that_is_done(scene):
    told = submit(scene.cluster, scene.folder, *RUNS["calm,killed"], "logger.project=calm,killed")
    assert "0 runs submitted, 0 in the queue already, 2 finished" in told


def test_a_run_leaves_a_node_on_which_nothing_works(scene):
    """n2 is broken: the batch script ends there before the run begins."""
    broken = "hydra.launcher.setup=['export MASTER_ADDR=127.0.0.1','[ $SLURMD_NODENAME != n2 ] || exit 1']"
    scene.cluster.ask("scontrol", "update", "NodeName=n1", "Weight=9")  # an idle n2 is taken first, again and again
    submit(scene.cluster, scene.folder, "logger=none", "logger.project=healthy", "trainer.steps=1", broken)
    scene.until(lambda: scene.cluster.ask("squeue", "-h") == "", "the healthy run's end")
    run = scene.run("healthy")
    log = (scene.folder / queue.FOLDER / run.job / f"{run.job}_0_log.out").read_text()
    assert run.state == "done" and "guard: not again on n2" in log
    assert json.loads((run.folder / "starts.jsonl").read_text())["slurm"]["SLURM_JOB_NODELIST"] == "n1"


def test_a_run_that_cannot_work_says_why_and_is_not_started_again(scene):
    submit(scene.cluster, scene.folder, "policy.path=/nowhere/policy", "logger=none", "logger.project=broken")
    scene.until(lambda: scene.cluster.ask("squeue", "-h") == "", "the broken run's end")
    run = scene.run("broken")
    assert run.state == "failed" and "/nowhere/policy" in run.note
    assert (scene.folder / queue.FOLDER / run.job / queue.FAILED).exists()
