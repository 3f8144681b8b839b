"""The command line: one line for what is wrong, exit 0 for verdicts and 2 for unusable input."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from drkernel.judge import __main__ as cli
from drkernel.judge.__main__ import main
from drkernel.tasks import load_tasks
from tests.judge.examples import HERE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("judge's command")]  # they share batches

RELU, GOOD = str(HERE / "tasks/relu.py"), str(HERE / "submissions/honest/90_helpers.py")
HACK = str(HERE / "submissions/hacks/04_decoy.py")


def test_one_submission_as_json():
    run = subprocess.run(
        [sys.executable, "-m", "drkernel.judge", RELU, GOOD, "--json"], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    verdict = json.loads(run.stdout)
    keys = ["status", "reason", "detail", "speedup", "coverage", "reference_ms", "submission_ms", "device", "seconds"]
    assert set(keys) <= verdict.keys() and verdict["status"] == "ok" and verdict["device"] == "simulated:H200"
    assert verdict["evidence"]["precision"] == "ieee"


PRECISE, NARROW = "submissions/honest/94_matmul.py", "submissions/hacks/24_tf32_dot.py"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The verdicts of a batch at some --precision, by the file of the submission."""

    @functools.cache
    def judged(precision: str) -> dict[str, dict]:
        folder = tmp_path_factory.mktemp(precision)
        chosen = {PRECISE: "matmul", NARROW: "matmul"}
        if precision == "auto":
            chosen |= {"submissions/hacks/23_narrow.py": "relu"}
            chosen |= {"submissions/honest/143_persistent_product.py": "linear_relu_fp16"}
        lines = [{"task": str(HERE / f"tasks/{task}.py"), "submission": str(HERE / s)} for s, task in chosen.items()]
        (folder / "pairs").write_text("".join(json.dumps(line) + "\n" for line in lines))
        batch = ["--batch", str(folder / "pairs"), "--out", str(folder / "out"), "--workers", "1"]
        assert main([*batch, "--precision", precision]) == 0
        return dict(zip(chosen, map(json.loads, (folder / "out").read_text().splitlines()), strict=True))

    return judged


@pytest.mark.parametrize(
    ("submission", "precision", "status", "found"),
    [
        (NARROW, "auto", "incorrect", "ieee"),
        (NARROW, "ieee", "incorrect", "ieee"),
        (NARROW, "tf32", "ok", "tf32"),
        ("submissions/hacks/23_narrow.py", "auto", "incorrect", "ieee"),
        ("submissions/honest/143_persistent_product.py", "auto", "ok", "low"),
    ],
)
def test_a_task_has_the_precision_that_was_asked_for_or_that_its_dtypes_say(
    asked, submission, precision, status, found
):
    verdict = asked(precision)[submission]
    assert (verdict["status"], verdict["evidence"]["precision"]) == (status, found)


def test_one_submission_has_the_precision_that_was_asked_for_too(capsys):
    assert main([str(HERE / "tasks/matmul.py"), str(HERE / NARROW), "--precision", "tf32", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["status"], verdict["evidence"]["precision"]) == ("ok", "tf32")


def test_where_a_task_allows_tf32_the_reference_is_timed_with_it(asked):
    exact, allowed = (asked(precision)[PRECISE] for precision in ("ieee", "tf32"))
    assert exact["status"] == allowed["status"] == "ok"
    assert allowed["reference_ms"] < exact["reference_ms"]


@pytest.mark.parametrize(
    ("called", "shown"),
    [("/usr/bin/drkernel-judge", "drkernel-judge"), ("/src/drkernel/judge/__main__.py", "python -m drkernel.judge")],
)
def test_help_names_the_command_as_it_was_called(called, shown, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [called, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(f"usage: {shown} ")
    assert all(word in text for word in ("TASK.py", "SUBMISSION.py", "--batch", "--json", "Exit status"))


def test_a_screen_for_people(capsys):
    assert main([RELU, HACK]) == 0
    shown = capsys.readouterr().out
    assert "hack" in shown and "launch_without_effect" in shown


def test_a_batch_judges_every_pair_in_order(tmp_path, capsys):
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    (tmp_path / "huge.py").write_text("#" * 10**6)
    submissions = [
        GOOD,
        HACK,
        str(tmp_path / "missing.py"),
        str(tmp_path / "binary.py"),
        str(tmp_path / "huge.py"),
        GOOD,
    ]
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    pairs.write_text("".join(json.dumps({"task": RELU, "submission": s}) + "\n" for s in submissions))
    assert main(["--batch", str(pairs), "--out", str(out), "--workers", "2"]) == 0
    verdicts = [json.loads(line) for line in out.read_text().splitlines()]
    assert [v["submission"] for v in verdicts] == submissions
    assert [v["status"] for v in verdicts] == ["ok", "hack", "invalid", "invalid", "invalid", "ok"]
    assert [v["reason"] for v in verdicts[2:5]] == ["unreadable", "unreadable", "too_large"]


def test_a_batch_with_bad_lines_keeps_what_could_be_judged(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("def get_inputs(:\n")
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "verdicts.jsonl"
    lines = [{"task": str(broken), "submission": GOOD}, {"task": "nowhere.py", "submission": GOOD}, {"task": RELU}]
    lines.append({"task": RELU, "submission": GOOD})
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no json\n")
    assert main(["--batch", str(pairs), "--out", str(out), "--workers", "1"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 4 and all(f"line {n}:" in e for n, e in zip((1, 2, 3, 5), errors, strict=True))
    assert 'found no json, expected {"task": path' in errors[3]
    verdicts = [json.loads(line) for line in out.read_text().splitlines()]
    assert [v.get("status") for v in verdicts] == [None, None, None, "ok", None]
    assert all("error" in v for v in verdicts if "status" not in v)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nowhere.py", GOOD], "nowhere.py"),
        ([RELU, "nowhere.py"], "nowhere.py"),
        ([RELU, GOOD, "--device", "cuda"], "cuda"),
        ([RELU], "SUBMISSION.py"),
        (["--batch", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl"),
        (["--batch", RELU], "--out"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_wrong_arguments_get_one_line_and_exit_2(arguments, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert word in error and error.count("\n") == 1


def test_an_unusable_task_gets_one_line_and_exit_2(tmp_path, capsys):
    task = tmp_path / "task.py"
    task.write_text((HERE / "tasks/relu.py").read_text().replace("torch.relu(x)", "torch.rilu(x)"))
    assert main([str(task), GOOD]) == 2
    error = capsys.readouterr().err
    assert "task.py" in error and "rilu" in error and error.count("\n") == 1


def test_a_task_file_is_the_task_that_training_reads(tmp_path):
    path = tmp_path / "task.py"
    path.write_text((HERE / "tasks/relu.py").read_text() + '\nSMALL = {"N": 64}\n')
    here, there = cli._task(str(path), "auto"), load_tasks(str(path), split="train")[0]
    assert here.digest == there.digest and here.small == {"N": 64} and "SMALL" not in here.source
    asked = cli._task(str(path), "tf32")
    assert (here.precision, asked.precision, asked.small) == ("ieee", "tf32", here.small)
