"""Sweeps without a Slurm: what is submitted, what a bad end leads to, and what one look at a folder shows."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from drkernel import config as configuration
from drkernel.slurm import guard, queue, sweep
from drkernel.slurm.guard import Crash
from drkernel.slurm.job import Job
from drkernel.slurm.queue import FAILED
from drkernel.slurm.snapshot import commit, diff, snapshot
from drkernel.training.run import Run
from drkernel.types import DrKernelError
from sweeps import curves, state, table
from sweeps.__main__ import main as sweeps_main
from tests import commands
from tests.configs import composed, train_config

ROOT = Path(__file__).parents[1]
ARMS = sorted({path.stem for path in (ROOT / "conf/arm").glob("*.yaml")} - {"paper"})
"""Those of the ablation; tests/test_departures.py has the paper's."""
PRESETS = sorted(path.stem for path in (ROOT / "conf/hydra/launcher").glob("*.yaml"))


# --- what a sweep consists of


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_of_the_ablation_is_a_valid_configuration(arm):
    config = train_config("+sweep=ablation", f"+arm={arm}")
    assert config.name == "ablation"
    assert (config.filters.mrs is not None) == ("mrs" in arm) and (config.filters.prs is not None) == ("prs" in arm)
    assert config.reward.name == ("profiling" if "_pr" in arm else "speedup")
    assert (config.trainer.turns == 1) == (arm == "single_turn") and (config.algo.gamma == 0) == (arm == "gamma0")


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf/sweep").glob("*.yaml")))
def test_every_sweep_names_its_folder_and_has_three_seeds(name):
    hydra = composed("train", f"+sweep={name}", hydra=True)
    assert hydra.name == name and hydra.hydra.sweeper.params.seed == "0,1,2"
    if name == "ablation":
        assert sorted(hydra.hydra.sweeper.params["+arm"].split(",")) == ARMS


# --- what is submitted


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """sbatch that keeps its script; squeue that shows what `queue.txt` says."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "queue.txt").write_text("")
    for name, body in {
        "sbatch": f'cp "$1" {tmp_path}/script.sh; echo Submitted batch job 7',
        "squeue": f"cat {tmp_path}/queue.txt",
        "scontrol": f"echo $@ >> {tmp_path}/released.txt",
        "srun": "exit 1",
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def launch(folder: Path, *overrides: str) -> str:
    done = commands.run(["train.py", "-m", f"hydra.sweep.dir={folder}/sweep", *overrides], timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_sweep_is_submitted_once_and_only_what_is_missing(slurm):
    told = launch(
        slurm, "hydra/launcher=slurm_node", "hydra.launcher.partition=p", "hydra.launcher.mail=me@x", "seed=1,2"
    )
    assert told.startswith("2 runs submitted (job 7, ") and "0 finished" in told
    script = (slurm / "script.sh").read_text()
    for option in ("array=0-1%2", "ntasks-per-node=7", "gpus-per-node=8", "partition=p", "time=1440", "requeue"):
        assert f"#SBATCH --{option}\n" in script
    assert "--signal=USR2@600" in script and "--mail-user=me@x" in script and "--error" not in script
    (slurm / "queue.txt").write_text("7_0|RUNNING|1:00|None|n1\n")
    (slurm / "sweep" / "seed=2").mkdir()
    (slurm / "sweep" / "seed=2" / "report.json").write_text(json.dumps({"step": 3}))
    for more in ([], ["logger=none"], ["trainer.save_every=1"]):  # with these it is the same run still
        told = launch(slurm, *more, "hydra/launcher=slurm_node", "trainer.steps=3", "seed=1,2")
        assert told.startswith("0 runs submitted, 1 in the queue already, 1 finished"), told
    (slurm / "queue.txt").write_text("7_0|PENDING|1:00|launch failed requeued held|\n")
    told = launch(slurm, "hydra/launcher=slurm_node", "trainer.steps=3", "seed=1")
    assert "1 in the queue already (1 of them held, now released)" in told
    assert (slurm / "released.txt").read_text() == "release 7_0\n"
    shutil.rmtree(slurm / "sweep" / "seed=2")
    told = launch(slurm, "hydra/launcher=slurm_node", "trainer.steps=3", "seed=2")
    assert told.startswith("1 runs submitted"), "a run whose folder was removed begins anew"


def test_a_run_that_ended_early_is_finished_whatever_steps_it_was_asked_for(tmp_path):
    planned = sweep.Planned([], str(tmp_path), steps=300)
    (tmp_path / "report.json").write_text(json.dumps({"step": 40}))
    assert not planned.finished(succeeded=True), "it was asked for more steps since"
    (tmp_path / "report.json").write_text(json.dumps({"step": 40, "ended_early": "the validation collapsed"}))
    assert planned.finished(succeeded=True)


@pytest.mark.slow
def test_without_an_answer_from_the_queue_nothing_is_submitted(slurm):
    (slurm / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(AssertionError, match="error: squeue does not answer; nothing was submitted"):
        launch(slurm, "hydra/launcher=slurm_node", "seed=1")


@pytest.mark.slow
def test_a_limit_that_leaves_no_time_for_work_is_refused(slurm):
    with pytest.raises(AssertionError, match=r"hydra\.launcher\.time=15, signal_delay_s=600"):
        launch(slurm, "hydra/launcher=slurm_node", "hydra.launcher.time=15", "seed=1")


def test_a_limit_that_is_no_time_is_the_users_error():
    with pytest.raises(DrKernelError, match=r"hydra\.launcher\.time=a day is no time; expected minutes, H:MM:SS"):
        sweep.minutes("a day")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_complete(preset, tmp_path):
    from hydra.core.plugins import Plugins

    Plugins.instance()
    options = OmegaConf.to_container(composed("train", f"hydra/launcher={preset}", hydra=True).hydra.launcher)
    assert options.pop("_target_").endswith("SweepLauncher")
    assert sweep.minutes(options["time"]) >= 480


# --- the code that runs


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    for name in ("train.py", "src/a.py", "tests/t.py", "ignored.log"):
        (root / name).write_text("1")
    (root / ".gitignore").write_text("*.log\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    return root


def test_a_snapshot_holds_uncommitted_changes_and_later_edits_do_not_reach_it(repository, tmp_path):
    (repository / "src/a.py").write_text("2")
    (repository / "src/new.py").write_text("new")
    first = snapshot(repository, tmp_path / "code")
    assert (first / "src/a.py").read_text() == "2" and (first / "src/new.py").exists()
    assert not (first / "tests").exists() and not (first / "ignored.log").exists()
    assert commit(first) == commit(repository) and "+2" in diff(first)
    assert snapshot(repository, tmp_path / "code") == first
    (repository / "src/a.py").write_text("3")
    second = snapshot(repository, tmp_path / "code")
    assert second != first and (first / "src/a.py").read_text() == "2"


def test_a_run_goes_on_with_another_snapshot(tmp_path):
    def config(code: str) -> configuration.Config:
        made = configuration.Config(run_dir=str(tmp_path), logger=configuration.LoggerConfig(wandb="disabled"))
        return dataclasses.replace(made, policy=configuration.PolicyConfig(path=f"/x/.code/{code}/assets/seed"))

    Run(config("0123456789ab")).close()
    Run(config("ba9876543210")).close()


# --- how a job ends


@pytest.mark.parametrize(
    ("code", "job_state", "why", "badly"),
    [
        (1, "RUNNING", "None", True),
        (137, "RUNNING", "None", True),
        (0, "RUNNING", "None", False),
        (0, "COMPLETING", "TimeLimit", True),
        (143, "CANCELLED", "None", False),
        (255, "COMPLETING", "None", False),  # submitit has requeued it
        (255, "PENDING", "BeginTime", False),
    ],
)
def test_only_a_crash_or_a_missed_limit_is_the_guards_business(code, job_state, why, badly):
    assert guard.ended_badly(code, f"JobId=3 JobState={job_state} Reason={why} Requeue=1") == badly


def test_a_run_that_gets_nowhere_is_given_up_and_one_that_gets_on_is_not():
    crashes = [Crash(0, 137, f"step_{n:06d}", "killed") for n in (1, 2, 2, 3, 3)]
    assert guard.final(crashes) is None
    assert "3 crashes in a row" in guard.final([*crashes, Crash(0, 1, "step_000003", "RuntimeError: no")])


def test_what_was_asked_wrongly_is_given_up_when_it_is_said_twice():
    """Once may be the node: a missing mount, a GPU that is gone."""
    wrong, other = (Crash(0, 2, "no checkpoint", f"error: {what}") for what in ("config: unknown key", "no GPU"))
    assert guard.final([wrong]) is None and guard.final([other, wrong]) is None
    assert guard.final([wrong, wrong]) == "error: config: unknown key"


def test_after_two_crashes_on_the_same_nodes_others_are_tried():
    first, again, elsewhere = (Crash(n, 1, "no checkpoint", "x", nodes) for n, nodes in enumerate(("a", "a", "b")))
    assert guard.suspects([first]) == "" and guard.suspects([elsewhere, first]) == ""
    assert guard.suspects([elsewhere, first, again]) == "a"
    assert guard.suspects([first, dataclasses.replace(again, progress="step_000001")]) == ""


def test_a_node_that_was_given_up_does_not_end_the_run_that_goes_on_elsewhere(monkeypatch):
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert guard.superseded("JobState=RUNNING Restarts=2 Reason=None")
    assert not guard.superseded("JobState=RUNNING Restarts=1 Reason=None")


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """A guard whose Slurm has the job running; returns how to end it, which counts requeues, and the job's folder."""
    folder, run, requeued = tmp_path / ".submitit" / "7_0", tmp_path / "run", []
    queue.note(folder, str(run), ["seed=1"])
    for name, value in {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}.items():
        monkeypatch.setenv(name, value)
    answer = lambda *command: "JobState=RUNNING Reason=None" if command[0] == "show" else requeued.append(command)
    monkeypatch.setattr(guard, "scontrol", answer)

    def end(code: int, *lines: str) -> int:
        text = "\n".join(["submitit INFO - Starting with job", *lines, ""])
        with open(folder / "7_0_0_log.out", "a") as file:
            file.write(text)
        guard.main(code, tmp_path / ".submitit")
        assert set(requeued) <= {("requeue", "7_0")}  # by SLURM_JOB_ID Slurm may requeue the whole array
        return len(requeued)

    return end, folder


def test_a_crash_is_requeued_until_there_have_been_three_without_progress(ended):
    end, folder = ended
    assert end(1, "Error executing job with overrides: ['a=1']", "[rank0]: ValueError: old") == 1
    assert end(137, "RuntimeError: connection closed by peer", "srun: error: n1: task 1: Killed") == 2
    assert not (folder / FAILED).exists()
    assert end(137, "ValueError: x", "slurmstepd: error: Detected 1 oom_kill event") == 2
    reason = json.loads((folder / FAILED).read_text())["reason"]
    assert "3 crashes in a row without a new checkpoint" in reason and "oom_kill" in reason
    first = (folder / "crashes.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["reason"] == "[rank0]: ValueError: old"


def test_what_was_asked_for_wrongly_is_final_the_second_time(ended):
    end, folder = ended
    for _ in range(2):
        lines = ["error: config: unknown key 'algo.gama'; did you mean 'algo.gamma'?"]
        lines += ["srun: error: n1: task 0: Exited with exit code 2", "srun: error: n1: task 1: Terminated"]
        assert end(143, *lines) == 1
    assert "algo.gama" in json.loads((folder / FAILED).read_text())["reason"]


def test_a_job_that_saved_at_sigterm_is_requeued_and_not_counted(ended):
    end, folder = ended
    assert [end(guard.EXIT_REQUEUE) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert end(137, "stopped by a signal at step 3; the same command goes on") == 6
    assert not (folder / FAILED).exists()


def test_a_restarted_run_tells_its_log_why_and_the_guard_does_not_take_that_for_its_end(ended, monkeypatch, capsys):
    _, folder = ended
    script = folder.parent / "script.py"
    script.write_text("print('at work')")
    monkeypatch.setenv("SUBMITIT_FOLDER", str(folder))
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    for name, value in {"SLURM_PROCID": "0", "SLURM_JOB_NUM_NODES": "1", "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    log = folder / "7_0_0_log.out"
    log.write_text("Starting with job\nstopped by a signal at step 2; the same command goes on\nStarting with job\n")
    monkeypatch.setattr(sys, "argv", [])
    Job(str(script), [], str(folder))()
    printed = capsys.readouterr().out
    assert printed == "restart 1: stopped by a signal at step 2\nat work\n"
    log.write_text(log.read_text() + printed + "ValueError: x\n")
    assert "stopped" not in guard.log_of(folder) and "ValueError: x" in guard.log_of(folder)


# --- one look


def make_run(folder: Path, name: str, steps_done: int, reward: float | None = None, rewarded: str = "speedup") -> None:
    path = folder / name
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(f"name: x\ntrainer:\n  steps: 4\nreward: {{name: {rewarded}}}\n")
    (path / "starts.jsonl").write_text("{}\n")
    lines = [{"step": s, "reward": float(s), "time/update": 1800.0} for s in range(1, steps_done + 1)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step"')
    if reward is not None:
        estimate = {"value": reward, "low": reward - 1, "high": reward + 1, "samples": 4}
        (path / "report.json").write_text(json.dumps({"step": 4, "after": dict.fromkeys(table.COLUMNS, estimate)}))


@pytest.fixture
def seen(slurm):
    folder = slurm / "sweep"
    for arm, rewards in {"a": (1.0, 2.0, 3.0), "b": (2.0, 3.5, 4.0)}.items():
        for seed, reward in enumerate(rewards):
            make_run(folder, f"+arm={arm},seed={seed}", 4, reward)
    make_run(folder, "+arm=c,seed=0", 2)
    for index, seed in enumerate((0, 1, 2, 3)):
        queue.note(folder / ".submitit" / f"9_{index}", str(folder / f"+arm=c,seed={seed}"), ["+arm=c", f"seed={seed}"])
    make_run(folder, "+arm=c,seed=2", 1)
    make_run(folder, "+arm=c,seed=3", 1)
    (folder / ".submitit" / "9_2" / FAILED).write_text(json.dumps({"reason": "error: no such policy"}))
    (slurm / "queue.txt").write_text("9_0|RUNNING|3:00:00|None|n1\n9_1|PENDING|8:00:00|Resources|\n")
    return folder


def test_a_look_says_where_every_run_stands(seen):
    runs = {run.folder.name: run for run in state.look(seen)}
    running, pending, failed, lost = (runs[f"+arm=c,seed={seed}"] for seed in range(4))
    assert (running.state, running.step, running.steps, running.left) == ("running", 2, 4, "1:00 h")
    assert running.note == "on n1, limit in 3:00:00"
    assert (pending.state, pending.note) == ("pending", "pending: Resources")
    assert (failed.state, failed.note) == ("failed", "error: no such policy")
    assert lost.state == "failed" and "left the queue" in lost.note
    assert runs["+arm=a,seed=1"].state == "done" and runs["+arm=a,seed=1"].setting == "arm=a"
    assert state.counts(list(runs.values())) == "6 done, 1 running, 1 pending, 2 failed"


def test_the_table_has_intervals_over_seeds_and_pairs_seeds_with_the_baseline(seen):
    text = table.markdown(state.look(seen), baseline="arm=a")
    assert "| arm=a | 3 | 2.000 ± 2.483 |" in text  # t = 4.30 for two degrees of freedom, s = 1
    assert "| arm=c | 0 of 4 |" in text
    changes = text.split("Difference from arm=a")[1]
    assert "| arm=b | 3 | +1.167 ± 0.717 |" in changes and "arm=c" not in changes


def test_rewards_are_compared_only_where_all_are_rewarded_alike(seen):
    make_run(seen, "+arm=d,seed=0", 4, 5.0, rewarded="binary")
    text = table.markdown(state.look(seen), baseline="arm=a")
    assert "reward" not in text and "| arm=a | 3 | 2.000 ± 2.483 |" in text  # correct, then
    with pytest.raises(DrKernelError, match=r"--baseline: found 'arm=z', expected one of: .*arm=a"):
        table.markdown(state.look(seen), baseline="arm=z")


def test_a_run_that_was_asked_for_more_steps_is_still_one_run(seen):
    queue.note(seen / ".submitit" / "10", str(seen / "+arm=a,seed=0"), ["+arm=a", "seed=0", "trainer.steps=8"])
    runs = state.look(seen)
    assert len(runs) == 10 and {run.setting for run in runs} == {"arm=a", "arm=b", "arm=c"}


def test_a_held_job_says_what_to_do(seen, slurm):
    (slurm / "queue.txt").write_text("9_1|PENDING|8:00:00|job requeued in held state|\n")
    run = next(run for run in state.look(seen) if run.folder.name == "+arm=c,seed=1")
    assert run.state == "held" and "scontrol release 9_1" in run.note


def test_a_seed_that_lags_behind_does_not_bend_the_curve(seen):
    make_run(seen, "+arm=e,seed=0", 4)
    make_run(seen, "+arm=e,seed=1", 2)
    for seed in (0, 1):
        queue.note(seen / ".submitit" / f"11_{seed}", str(seen / f"+arm=e,seed={seed}"), ["+arm=e", f"seed={seed}"])
    runs = [run for run in state.look(seen) if run.setting == "arm=e"]
    for run in runs:
        run.state = "running"
    assert [x for x, *_ in curves.series(runs, ("reward",), against_time=False)["arm=e"]] == [1, 2]
    runs[1].state = "failed"
    assert [x for x, *_ in curves.series(runs, ("reward",), against_time=False)["arm=e"]] == [1, 2, 3, 4]


@pytest.mark.slow
def test_curves_follow_the_mean_over_seeds_and_are_drawn(seen, tmp_path):
    runs = state.look(seen)
    points = curves.series(runs, ("reward",), against_time=True)["arm=a"]
    assert points == [(0.5 * step, step, step, step) for step in (1, 2, 3, 4)]
    curves.plot(runs, tmp_path)
    assert (tmp_path / "steps.png").stat().st_size > 10_000 and (tmp_path / "time.png").exists()


@pytest.mark.slow
def test_the_command_prints_state_and_table_and_writes_the_report(seen):
    done = subprocess.run([sys.executable, "-m", "sweeps", seen], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "10 runs: 6 done" in done.stdout and "error: no such policy" in done.stdout.replace("\n", " ")
    assert (seen / "report" / "table.md").exists()


def test_a_folder_without_runs_is_one_line_that_names_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["__main__.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        sweeps_main()
    assert "python -m sweeps: error: " in capsys.readouterr().err
