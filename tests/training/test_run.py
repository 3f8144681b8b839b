"""A run folder reproduces its run, and holds every step exactly once."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from drkernel.config import AlgoConfig, ColdstartConfig, Config, LoggerConfig, PolicyConfig, SftConfig, TrainerConfig
from drkernel.objective.rewards import speedup
from drkernel.objective.rollouts import tabulate
from drkernel.training import completions, report
from drkernel.training.ranks import Ranks
from drkernel.training.run import Run, check_tasks, opened
from drkernel.training.trainer import State
from drkernel.types import DrKernelError, Task, Trajectory, Turn, Verdict


def config_for(folder, **changes):
    return dataclasses.replace(Config(run_dir=str(folder), logger=LoggerConfig(wandb="disabled")), **changes)


def test_the_folder_says_what_was_run(tmp_path):
    Run(config_for(tmp_path)).close()
    assert "advantage: trloo" in (tmp_path / "config.yaml").read_text()
    assert "torch==" in (tmp_path / "environment.txt").read_text()
    start = json.loads((tmp_path / "starts.jsonl").read_text())
    assert start["commit"] and start["command"]


def test_metrics_after_a_checkpoint_are_cut_off_when_the_run_resumes_there(tmp_path):
    run = Run(config_for(tmp_path))
    run.log(1, {"reward": 0.5})
    offset = run.metrics_offset
    run.log(2, {"reward": 0.6})
    run.close()
    again = Run(config_for(tmp_path))
    again.rewind(offset)
    again.log(2, {"reward": 0.7})
    assert again.metrics() == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.7}]
    again.close()


def test_what_is_not_a_number_is_null_in_the_metrics(tmp_path):
    run = Run(config_for(tmp_path))
    run.log(1, {"speedup": float("nan"), "grad_norm": float("inf"), "reward": 0.5})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert line == '{"step": 1, "speedup": null, "grad_norm": null, "reward": 0.5}'


def test_a_start_that_was_given_up_elsewhere_writes_nothing_more(tmp_path):
    lost = Run(config_for(tmp_path))
    lost.log(1, {"reward": 0.5})
    newest = Run(config_for(tmp_path))
    for write in (lambda: lost.log(2, {"reward": 0.6}), lambda: lost.metrics_offset):
        with pytest.raises(DrKernelError, match="another start of this run has taken over"):
            write()
    newest.log(2, {"reward": 0.7})
    assert [line["reward"] for line in newest.metrics()] == [0.5, 0.7]


def test_a_run_is_measured_on_one_kind_of_device(tmp_path):
    Run(config_for(tmp_path)).close()
    assert json.loads((tmp_path / "starts.jsonl").read_text())["judge"] == "simulated:H200"
    start = (tmp_path / "starts.jsonl").read_text().replace("simulated:H200", "cuda:NVIDIA A100")
    (tmp_path / "starts.jsonl").write_text(start)
    with pytest.raises(DrKernelError, match="measured on cuda:NVIDIA A100, now it would be on simulated:H200"):
        Run(config_for(tmp_path))


def test_a_run_that_names_its_generator_by_a_number_is_refused_with_the_name(tmp_path):
    Run(config_for(tmp_path)).close()
    kept = tmp_path / "config.yaml"
    kept.write_text(kept.read_text().replace("generator: operators", "generator: 1"))
    with pytest.raises(DrKernelError, match=r"config\.yaml: tasks\.generator: found 1, .* expected operators"):
        Run(config_for(tmp_path))


def test_another_configuration_may_not_continue_the_run(tmp_path):
    Run(config_for(tmp_path)).close()
    with pytest.raises(DrKernelError, match=r"made with algo\.gamma=1\.0, now it is 0\.0"):
        Run(config_for(tmp_path, algo=AlgoConfig(gamma=0.0)))


def test_a_run_goes_on_where_only_keys_of_other_stages_changed(tmp_path):
    Run(config_for(tmp_path)).close()
    Run(config_for(tmp_path, coldstart=ColdstartConfig(tasks=7), sft=SftConfig(lr=1.0))).close()


def test_a_run_may_be_made_longer(tmp_path):
    Run(config_for(tmp_path, trainer=TrainerConfig(steps=5))).close()
    Run(config_for(tmp_path, trainer=TrainerConfig(steps=9))).close()
    assert "steps: 9" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("trainer", "micro_batch_tokens", 4096),
        ("trainer", "eval_samples", 9),
        ("engine", "kv_cache_gib", 8.0),
        ("engine", "slots", 8),
        ("judge", "timeout_s", 60.0),
        ("tasks", "eval_count", 9),
    ],
)
def test_a_run_goes_on_with_less_memory_or_another_table(tmp_path, group, key, value):
    Run(config_for(tmp_path)).close()
    config = config_for(tmp_path)
    Run(dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **{key: value})})).close()
    assert f"{key}: {value}" in (tmp_path / "config.yaml").read_text()


def test_a_key_that_begins_like_one_that_may_change_may_not(tmp_path):
    Run(config_for(tmp_path)).close()
    with pytest.raises(DrKernelError, match=r"trainer\.samples=16, now it is 4"):
        Run(config_for(tmp_path, trainer=TrainerConfig(samples=4)))


TRAIN, TEST = [Task("a", "x = 1"), Task("b", "x = 2")], [Task("c", "x = 3")]


def test_a_run_states_its_tasks_and_goes_on_with_the_same_ones(tmp_path):
    for test in (TEST, TRAIN):  # no step depends on the tasks of the table at the end
        run = Run(config_for(tmp_path))
        check_tasks(run, TRAIN, test)
        run.close()
    stated = json.loads((tmp_path / "tasks.json").read_text())
    assert stated["train"]["count"] == stated["test"]["count"] == 2 and len(stated["train"]["digest"]) == 16


@pytest.mark.parametrize("other", [TRAIN[::-1], TRAIN[:1], [TRAIN[0], Task("b", "x = 4")]])
def test_a_run_does_not_go_on_with_other_tasks(tmp_path, other):
    first = Run(config_for(tmp_path))
    check_tasks(first, TRAIN, TEST)
    first.close()
    with pytest.raises(DrKernelError, match=r"tasks\.json: this run trains on other tasks \(2 with digest \w{16}\)"):
        check_tasks(Run(config_for(tmp_path)), other, TEST)


@pytest.mark.slow
def test_offline_wandb_keeps_its_files_in_the_run_folder_and_resumes_its_id(tmp_path):
    identity = None
    for step in (1, 2):
        run = Run(config_for(tmp_path, logger=LoggerConfig(wandb="offline")))
        identity = run.start_wandb(identity)
        run.log(step, {"reward": 1.0})
        run.close()
    assert any((tmp_path / "wandb").rglob(f"run-{identity}.wandb"))


def test_wandb_without_a_key_is_an_error_that_names_its_config_key(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")

    def no_key(**options):
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setattr(wandb, "init", no_key)
    run = Run(config_for(tmp_path, logger=LoggerConfig(wandb="online")))
    with pytest.raises(DrKernelError, match=r"config: logger\.wandb=online: No API key .*; expected WANDB_API_KEY"):
        run.start_wandb(None)
    run.close()


def test_a_missing_key_of_wandb_is_found_before_a_folder_is_made(tmp_path, monkeypatch):
    """Tasks, policy, judge and engine take minutes; wandb itself is started once the checkpoint is loaded, which has
    its id."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("too late"))
    for name, value in {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc"), "WANDB_API_KEY": ""}.items():
        monkeypatch.setenv(name, value)
    config = config_for(tmp_path / "run", logger=LoggerConfig(wandb="online"))
    refused = pytest.raises(DrKernelError, match=r"config: logger\.wandb=online: .*; expected WANDB_API_KEY")
    with refused, opened(config, Ranks()):
        pytest.fail("the run has begun")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_an_error_that_names_its_config_key(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DrKernelError, match=r"config: run_dir=.*/file/run: Not a directory; expected a folder"):
        Run(config_for(tmp_path / "file" / "run"))


def test_a_run_goes_on_with_the_texts_of_prompts_that_it_began_with(tmp_path):
    file = tmp_path / "prompts.yaml"
    config = config_for(tmp_path / "run", policy=PolicyConfig(template=str(file)))
    file.write_text("system: Be brief.")
    Run(config).close()
    Run(config).close()
    file.write_text("system: Be long.")
    with pytest.raises(DrKernelError, match=r"prompts.yaml: found other texts than this run began with"):
        Run(config)


def files_of(folder, pattern: str) -> list:
    return [path for path in (folder / "wandb").rglob(pattern) if path.is_file()]


@pytest.mark.slow
def test_wandb_gets_a_table_of_samples_at_a_validation_and_the_page_at_the_end(tmp_path, monkeypatch):
    options = LoggerConfig(wandb="offline", samples=2, page=True)
    run = Run(config_for(tmp_path, logger=options))
    run.start_wandb(None)
    turns = [Turn([1], [2], [0.0], None, Verdict("ok", "faster", speedup=s, coverage=1.0)) for s in (1.5, 2.0)]
    trajectories = [Trajectory(f"t{g}", g, s, turns) for g in range(3) for s in range(2)]
    prompts = SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids: f"ids {ids}"))
    table = tabulate(trajectories, speedup)
    completions.write_validation(
        SimpleNamespace(run=run, config=run.config, prompts=prompts, state=State(step=4)),
        table,
        trajectories,
        trajectories,
    )
    (shown,) = [json.loads(path.read_text()) for path in files_of(tmp_path, "*.table.json")]
    assert shown["columns"] == ["task", "sample", "turn", "text", "verdict", "speedup", "coverage", "reward"]
    assert [row[:3] for row in shown["data"]] == [["t0", 0, 0], ["t0", 0, 1], ["t1", 1, 0], ["t1", 1, 1]]
    assert shown["data"][1][3:] == ["ids [2]", "ok: faster", 2.0, 1.0, 3.0]
    run.log(4, {"reward": 1.0})
    logged, real = [], run._wandb.log_artifact
    monkeypatch.setattr(run._wandb, "log_artifact", lambda artifact: logged.append(artifact) or real(artifact))
    report.publish(run)
    run.close()
    assert "<html" in (tmp_path / "view.html").read_text()
    assert [(artifact.type, [*artifact.manifest.entries]) for artifact in logged] == [("page", ["view.html"])]


def test_without_wandb_the_page_is_written_all_the_same_and_nothing_where_none_is_asked_for(tmp_path):
    for page in (False, True):
        run = Run(config_for(tmp_path, logger=LoggerConfig(wandb="disabled", page=page)))
        run.log(1, {"reward": 1.0})
        report.publish(run)
        run.close()
        assert (tmp_path / "view.html").exists() == page


def test_a_start_that_is_refused_before_its_first_step_leaves_no_folder(tmp_path):
    with pytest.raises(DrKernelError, match="no task"), opened(config_for(tmp_path / "run"), Ranks()) as run:
        run.write("tasks.json", {})
        raise DrKernelError("no task")
    assert not (tmp_path / "run").exists()


def test_a_refused_start_leaves_what_others_made_and_what_has_steps(tmp_path):
    for folder, steps in (("of a cold start", 0), ("begun", 0), ("refused late", 1)):
        config = config_for(tmp_path / folder)
        if folder == "of a cold start":
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "trajectories.parquet").touch()
        if folder == "begun":
            Run(config).close()
        with pytest.raises(DrKernelError), opened(config, Ranks()) as run:
            for step in range(steps):
                run.log(step, {})
            raise DrKernelError("refused")
        assert (tmp_path / folder / "config.yaml").exists(), folder


def test_other_ranks_have_no_folder(tmp_path):
    with opened(config_for(tmp_path / "run"), Ranks(rank=1, size=2)) as run:
        assert run is None
    assert not (tmp_path / "run").exists()
