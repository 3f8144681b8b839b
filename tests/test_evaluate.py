"""The whole study, for real: tasks, engine, judge, strategies, records, report."""

import contextlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import evaluate
from drkernel.config import EvaluateConfig
from drkernel.config.keys import SECRET, valid_keys
from drkernel.config.study import MAY_CHANGE, NOT_IN_NAME, TIMED, UNUSED
from drkernel.scaling import records, setup, study_folder
from drkernel.training.judging import measured_on
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError, Task
from tests import commands
from tests.configs import composed, every_variant, variants
from tests.configs import evaluate_config as load

pytestmark = pytest.mark.xdist_group("studies")

ROOT = Path(__file__).parents[1]
SMALL = ["tasks.eval_count=2", "scaling.budget=2", "engine.slots=8", "trainer.threads=1"]


def run(folder, *overrides):
    """A study in this process; its records."""
    evaluate.evaluate(load("report=false", *SMALL, *overrides, run_dir=folder), Ranks())
    return content(folder)


def content(folder):
    """The records by key, without what depends on time."""
    found = records.read(folder / records.RESULTS)
    timeless = {"generate_s": 0, "judge_s": 0, "started": 0}
    assert len({record.key for record in found}) == len(found)
    return {r.key: replace(r, **timeless, verdict=replace(r.verdict, seconds=0)) for r in found}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a small study by the real command."""
    folder = tmp_path_factory.mktemp("study") / "run"
    command = [sys.executable, "evaluate.py", f"hydra.run.dir={folder}", *SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_small_study_leaves_every_turn_and_a_report(study):
    played = content(study)
    assert len(played) == 4 and {record.model for record in played.values()} == {"assets/seed"}
    assert {(record.call, record.shown) for record in played.values()} == {(0, ()), (1, (0,))}
    assert all(r.verdict.device == "simulated:H200" for r in played.values() if r.verdict.ok)
    assert {"config.yaml", "tasks.jsonl", "report"} <= {path.name for path in study.iterdir()}
    assert {"index.html", "table.md", "table.csv"} <= {path.name for path in (study / "report").iterdir()}


@pytest.mark.slow
def test_a_study_that_was_killed_in_the_middle_of_a_line_goes_on_to_the_same_turns(study, tmp_path):
    lines = (study / records.RESULTS).read_bytes().splitlines(keepends=True)
    (tmp_path / records.RESULTS).write_bytes(b"".join(lines[:2]) + lines[2][:50])
    assert run(tmp_path) == content(study)


@pytest.mark.slow
def test_the_command_without_a_shard_collects_what_shards_played_and_plays_the_rest(study, tmp_path):
    evaluate.evaluate(load("shard=1/2", *SMALL, run_dir=tmp_path), Ranks())
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["1-of-2"]
    assert not (tmp_path / records.RESULTS).exists() and not (tmp_path / "report").exists()
    before = content(tmp_path / "shards" / "1-of-2")
    played = run(tmp_path)
    assert played == content(study) and len(before) == 2 and all(played[key] == before[key] for key in before)


@pytest.mark.slow
def test_answers_of_a_study_judged_as_solutions_get_the_same_verdicts(study, tmp_path):
    given = tmp_path / "theirs.jsonl"
    shutil.copy(study / records.RESULTS, given)
    judged = run(tmp_path, f"solutions={given}")
    expected = {(r.task, r.source): r.verdict for r in content(study).values()}
    assert {(r.task, r.source): r.verdict for r in judged.values()} == expected
    assert {(r.strategy, r.model, r.call) for r in judged.values()} == {("solutions", "theirs.jsonl", 0)}


def test_a_folder_belongs_to_one_study(tmp_path):
    config = load(run_dir=tmp_path)
    study_folder.keep(config, tmp_path, [], {})
    study_folder.keep(load("scaling.trials=3", "judge.workers=1", "shard=1/4", run_dir=tmp_path), tmp_path, [], {})
    for folder in (tmp_path, tmp_path / "shards" / "0-of-2"):
        with pytest.raises(DrKernelError, match=r"made with scaling\.budget=8, now it is 4"):
            study_folder.keep(load("scaling.budget=4", run_dir=tmp_path), folder, [], {})


def test_shards_of_another_configuration_are_refused_and_not_collected(tmp_path):
    start = lambda seed, folder: study_folder.keep(load(f"seed={seed}", run_dir=tmp_path), tmp_path / folder, [], {})
    start(0, "shards/0-of-2")
    for folder in ("shards/1-of-2", ""):
        with pytest.raises(DrKernelError, match=r"0-of-2/config\.yaml: this study was made with seed=0, now it is 1"):
            start(1, folder)


def test_which_copy_of_the_code_a_shard_ran_makes_no_other_study_of_it(tmp_path):
    config = load(run_dir=tmp_path)
    for number, copy in enumerate(("outputs/x/.code/0123456789ab/", "outputs/x/.code/ba9876543210/", "")):
        config.policy.path = str(ROOT / f"{copy}assets/seed")
        study_folder.keep(config, tmp_path / "shards" / f"{number}-of-3", [], {})


def test_a_study_that_names_its_generator_by_a_number_is_refused_with_the_name(tmp_path):
    study_folder.keep(load(run_dir=tmp_path), tmp_path, [], {})
    kept = tmp_path / "config.yaml"
    kept.write_text(kept.read_text().replace("generator: operators", "generator: 1"))
    with pytest.raises(DrKernelError, match=r"config\.yaml: tasks\.generator: found 1, .* expected operators"):
        study_folder.keep(load(run_dir=tmp_path), tmp_path, [], {})


@pytest.mark.parametrize("key", TIMED)
def test_where_seconds_are_the_budget_what_they_depend_on_may_not_change(key, tmp_path):
    start = lambda *overrides: study_folder.keep(load(*overrides, run_dir=tmp_path), tmp_path, [], {})
    start("scaling.seconds=60", f"{key}=3")
    with pytest.raises(DrKernelError, match=rf"made with {key}=3, now it is 5"):
        start("scaling.seconds=60", f"{key}=5")


def test_a_study_is_tied_to_what_answers_and_what_judges(tmp_path):
    one, two = tmp_path / "shards" / "0-of-2", tmp_path / "shards" / "1-of-2"
    start = lambda folder, **identity: study_folder.keep(load(run_dir=tmp_path), folder, [], identity)
    start(one, device="cuda:NVIDIA H200", weights="abc")
    start(two, device="cuda:NVIDIA H200", weights="abc")
    for folder in (one, two, tmp_path):
        with pytest.raises(
            DrKernelError, match=r"/identity\.json: .* device=cuda:NVIDIA H200, now it is simulated:H200"
        ):
            start(folder, device="simulated:H200", weights="abc")
        with pytest.raises(DrKernelError, match=r"made with weights=abc, now it is abd"):
            start(folder, device="cuda:NVIDIA H200", weights="abd")
    for folder in (one, two):
        (folder / study_folder.IDENTITY).unlink()
    start(tmp_path, device="simulated:H200", weights="abd")  # a study of earlier days gets one
    assert json.loads((tmp_path / study_folder.IDENTITY).read_text()) == {"device": "simulated:H200", "weights": "abd"}


def test_a_study_is_tied_to_its_tasks(tmp_path):
    a, b = Task("a", "class Model: ..."), Task("b", "class Model: ...")
    start = lambda *tasks: study_folder.keep(load(run_dir=tmp_path), tmp_path, tasks, {})
    study_folder.keep(load("shard=0/2", run_dir=tmp_path), tmp_path / "shards" / "0-of-2", [a, b], {})
    start(b, a)
    for others in ((a, replace(b, source="class Model: pass")), (a,), (a, b, replace(a, id="c"))):
        with pytest.raises(
            DrKernelError, match=r"/tasks\.jsonl: this study was made with task (b|c)=\w+, now it is \w+"
        ):
            start(*others)
    (tmp_path / study_folder.TASKS).write_text("{}\n")
    with pytest.raises(DrKernelError, match=r"/tasks\.jsonl: not what a study leaves there"):
        start(a, b)


def test_the_fingerprint_of_a_policy_is_that_of_its_weights(tmp_path):
    policy = tmp_path / "policy"
    shutil.copytree(ROOT / "assets" / "seed", policy)
    before = study_folder.fingerprint(str(policy))
    assert before == study_folder.fingerprint(str(ROOT / "assets" / "seed")) and len(before) == 16
    (policy / "generation_config.json").unlink()
    assert study_folder.fingerprint(str(policy)) == before
    weights = (policy / "model.safetensors").read_bytes()
    for changed in (weights[:-1] + bytes([weights[-1] ^ 1]), weights + b"x", bytes([weights[0] ^ 1]) + weights[1:]):
        (policy / "model.safetensors").write_bytes(changed)
        assert study_folder.fingerprint(str(policy)) != before
    assert study_folder.fingerprint("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(DrKernelError, match=r"policy\.path: no config\.json in "):
            study_folder.fingerprint(str(missing))


def test_the_identity_of_a_study_names_weights_or_model_and_the_device(monkeypatch):
    hosted = SimpleNamespace(model="as the server names it")
    monkeypatch.setattr(setup, "open_endpoint", lambda config: contextlib.nullcontext(hosted))
    weights, simulated = study_folder.fingerprint(str(ROOT / "assets" / "seed")), "judge.device=simulated"
    assert setup.identity(load(simulated)) == {"device": "simulated:H200", "weights": weights}
    assert setup.identity(load(simulated, "judge.gpu=A100", "solutions=x")) == {"device": "simulated:A100"}
    found = setup.identity(load(simulated, "endpoint.url=http://host/v1"))
    assert found == {"device": "simulated:H200", "model": "as the server names it"}


def test_the_identity_of_a_study_changes_with_the_texts_of_its_prompts(tmp_path):
    texts, found = tmp_path / "mine.yaml", []
    chat = ("judge.device=simulated", "policy.prompts=chat", f"policy.template={texts}")
    for text in ("system: one", "system: two", "system: one"):
        texts.write_text(text)
        found.append(setup.identity(load(*chat))["template"])
    assert found[0] == found[2] != found[1]
    assert "template" not in setup.identity(load(*chat, "solutions=x"))


def test_a_folder_of_solutions_is_called_by_its_name_however_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    assert [setup.model_label(load(f"solutions={given}")) for given in (".", "../theirs/", tmp_path / "theirs")] == [
        "theirs"
    ] * 3


def test_the_device_is_what_the_judges_gpus_are_called(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", ["NVIDIA H100", "NVIDIA H200"].__getitem__)
    named = lambda *overrides: measured_on(load(*overrides))
    assert named() == named("judge.gpus=['5']") == "cuda:NVIDIA H200"
    assert named("judge.device=cuda") == "cuda:NVIDIA H100, NVIDIA H200"
    assert named("judge.device=simulated") == "simulated:H200"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DrKernelError, match=r"judge\.device: found cuda, but no GPU is visible"):
        named("judge.device=cuda")


GROUPS = ["scaling", "policy", "tasks", "engine", "judge", "reward"]


@pytest.mark.parametrize("overrides", every_variant(GROUPS), ids=" ".join)
def test_all_variants_of_all_groups_compose_together(overrides):
    load(*overrides)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_variant_of_every_group_composes_alone(group):
    for (override,) in every_variant([group]):
        load(override)


@pytest.mark.parametrize("name", [path.stem for path in variants("scaling")])
def test_a_strategys_variant_has_its_name(name):
    assert load(f"scaling={name}").scaling.name == name


def test_keys_that_say_how_a_machine_is_used_do_not_name_a_studys_folder():
    hydra = composed("evaluate", hydra=True).hydra
    unnamed = tuple(hydra.job.config.override_dirname.exclude_keys)
    assert unnamed == NOT_IN_NAME and set(unnamed) - {SECRET} <= set(MAY_CHANGE)
    assert {"engine.kv_cache_gib", "judge.timeout_s", "trainer.gpus"} <= set(unnamed)


@pytest.mark.slow
def test_tasks_are_chosen_by_split_and_by_id():
    tasks = setup.study_tasks(load("tasks=handwritten"))
    assert len(tasks) >= 30 and {task.level for task in tasks} == {1, 2, 3}
    half = setup.study_tasks(load("tasks=handwritten", "tasks.eval_source=handwritten:development"))
    assert len(half) == 50 and {task.info["half"] for task in half} == {"development"}
    chosen = setup.study_tasks(load("tasks=handwritten", f"ids=['{tasks[0].id}','{tasks[1].id[:-1]}?']"))
    assert {task.id for task in chosen} >= {tasks[0].id, tasks[1].id} and len(chosen) < 30
    assert {task.split for task in setup.study_tasks(load("split=validation", "tasks.eval_count=2"))} == {"validation"}
    gradients = setup.study_tasks(load("tasks=handwritten", "tasks.backward=true"))
    assert [task.info["forward"] for task in gradients] == [task.id for task in tasks if "arg" not in task.id]
    with pytest.raises(DrKernelError, match="no task of generated has such an id"):
        setup.study_tasks(load("ids=[nothing]"))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("shard=2/2", "i from 0 to n - 1"),
        ("shard=half", "i from 0 to n - 1"),
        ("scaling.keep=tp", "did you mean 'top'"),
        ("scaling.budget=0", "1 or more"),
        ("engine.max_tokens=64", "engine.max_answer_tokens=400 with engine.max_tokens=64 leaves no room"),
        ("engine.top_p=0", "engine.top_p=0; expected more than 0 and at most 1"),
        ("split=tests", "did you mean 'test'"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(override, words):
    with pytest.raises(DrKernelError, match=words):
        load(override)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("scaling=managd", "managed"),
        ("scaling.budgte=2", "scaling.budget"),
        ("trainer.steps=3", "trainer.steps is for training"),
        ("tasks.count=9", "tasks.count is for training"),
        ("policy.fp32_head=true", "policy.fp32_head is for training"),
        ("reward.overlong_penalty=1", "reward.overlong_penalty is for training"),
        ("policy.path=train/seed=0/policy", '''"policy.path='train/seed=0/policy'"'''),
        ("compare=[seed=0,seed=1]", '''"compare=['first','second']"'''),
    ],
)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(override, words, tmp_path):
    done = commands.run([str(ROOT / "evaluate.py"), override], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1 and words in done.stderr


def test_what_only_training_needs_may_be_in_a_policy_s_file_but_not_typed():
    assert set(valid_keys(EvaluateConfig)) > UNUSED
    assert load("policy=qwen3_8b").policy.lr == 1e-6


def test_only_finished_studies_can_be_compared(tmp_path):
    with pytest.raises(DrKernelError, match=r"nowhere: no results\.jsonl there"):
        evaluate.write_report(load(), [tmp_path / "nowhere"], "title")
    (tmp_path / records.RESULTS).touch()
    for report in ("true", "false"):
        with pytest.raises(DrKernelError, match=r"results\.jsonl: no judged turn in it"):
            evaluate.write_report(load(f"report={report}"), [tmp_path], "title")
