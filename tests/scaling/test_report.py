import csv
import dataclasses
import json
from pathlib import Path

import pytest
from rich.console import Console

from drkernel.scaling import measures, report, sections
from drkernel.scaling.records import RESULTS, write
from drkernel.scaling.trials import Trials
from drkernel.types import DrKernelError, Verdict
from tests.scaling import synthetic

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("report")]  # one worker writes the report

PICTURES = ("fast_calls", "fast_tokens", "fast_seconds", "speedups", "families", "failures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return synthetic.study(tmp_path_factory.mktemp("studies") / "three", tasks=12)


@pytest.fixture(scope="module")
def out(folder) -> Path:
    report.write([folder], folder / "report", "Three strategies")
    return folder / "report"


def test_a_report_is_a_page_tables_and_pictures(out):
    found = {path.name for path in out.iterdir()}
    assert found == {"index.html", "table.md", "table.csv", *(f"{name}.png" for name in PICTURES)}
    assert all(path.stat().st_size > 5000 for path in out.glob("*.png"))


def test_the_table_holds_what_was_measured(out, folder):
    runs = {name: Trials.of(rows) for name, rows in report.load([folder]).items()}
    with open(out / "table.csv", newline="") as file:
        rows = {(r["section"], r["run"], r["key"], r["measure"]): r for r in csv.DictReader(file)}
    for name, run in runs.items():
        fast = measures.summary(run)["fast@1.2"]
        row = rows["Runs", name, "", "fast@1.2"]
        assert (float(row["value"]), float(row["low"]), float(row["high"])) == (fast.value, fast.low, fast.high)
        assert report.text("fast@1.2", fast) in (out / "table.md").read_text()
    assert ("At equal budgets of judge calls", "parallel 8", "4", "fast@3") in rows
    paired = "Paired with single at equal budgets"
    assert (paired, "managed w=4", "at 1 judge call", "last/correct") in rows
    tokens = f"at {runs['single'].reach('tokens'):.0f} generated tokens"
    assert (paired, "managed w=4", tokens, "fast@1.2") in rows
    assert ("Against torch.compile", "single", "", "compile/fast@1") in rows
    assert ("The best of k independent completions", "parallel 8", "k = 16", "pass") in rows


def test_no_run_is_shown_at_a_budget_that_it_never_had(out, folder):
    runs = {name: Trials.of(rows) for name, rows in report.load([folder]).items()}
    with open(out / "table.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] == "fast@1.2"]
    for axis, word in sections.BUDGETS.items():
        mine = [row for row in rows if row["section"] == f"At equal budgets of {word}"]
        for name, run in runs.items():
            last = max((row for row in mine if row["run"] == name), key=lambda row: float(row["key"]))
            assert float(last["key"]) == measures.last_budget(run, axis)
            assert float(last["value"]) == measures.summary(run)["fast@1.2"].value
    assert "| single | 2 | - | - | - |" in (out / "table.md").read_text()


@pytest.mark.usefixtures("no_plots")
def test_a_report_says_which_tasks_have_no_answer(tmp_path):
    path = synthetic.study(tmp_path / "study", tasks=5)
    rows = synthetic.records(tasks=5)
    ids = sorted({row.task for row in rows})
    (path / report.TASKS).write_text("".join(json.dumps({"id": i, "source": ""}) + "\n" for i in [*ids, "unplayed"]))
    write(path / RESULTS, [row for row in rows if row.strategy != "single" or row.task != ids[0]])
    report.write([path], tmp_path / "out", "missing")
    note = "single: 2 of 6 tasks have no completion"
    text = (tmp_path / "out" / "table.md").read_text()
    assert note in text and "parallel 8: 1 of 6 tasks has no completion" in text
    assert "| single | 4 of 6 |" in text and note in (tmp_path / "out" / "index.html").read_text()
    console = Console(width=160)
    with console.capture() as shown:
        report.show([path], console)
    assert note in shown.get()


def test_every_line_of_a_markdown_table_has_the_same_columns(out):
    for table in (part for part in (out / "table.md").read_text().split("\n\n") if part.startswith("|")):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_the_terminal_shows_runs_and_what_changed(folder):
    console = Console(width=160)
    with console.capture() as shown:
        report.show([folder], console)
    text = shown.get()
    assert "managed w=4, at 1 judge call" in text and "paired with single at equal judge calls" in text


def test_runs_are_named_after_what_tells_them_apart(tmp_path):
    rows = [row for row in synthetic.records(tasks=2) if row.strategy == "single"]
    for name in ("base", "trained"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / RESULTS, rows)
    assert list(report.load([tmp_path / "base"])) == ["single"]
    assert list(report.load([tmp_path / "base", tmp_path / "trained"])) == ["base", "trained"]
    others = [dataclasses.replace(row, strategy="parallel", model="big") for row in rows]
    write(tmp_path / "trained" / RESULTS, others)
    assert list(report.load([tmp_path / "base", tmp_path / "trained"])) == ["seed · single", "big · parallel"]
    write(tmp_path / "trained" / RESULTS, [dataclasses.replace(row, model="seed") for row in others])
    assert list(report.load([tmp_path / "base", tmp_path / "trained"])) == ["single", "parallel"]


def test_one_run_on_one_unsolved_task_can_be_reported(tmp_path):
    rows = [row for row in synthetic.records(tasks=30, trials=1) if row.strategy == "single" and not row.verdict.ok]
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / RESULTS, rows[:1])
    report.write([tmp_path / "one"], tmp_path / "out", "one")
    report.show([tmp_path / "one"], Console(quiet=True))
    assert "0.0% [0.0, 79.3]" in (tmp_path / "out" / "table.md").read_text()


def test_a_folder_without_turns_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DrKernelError, match=f"{tmp_path.name}/results.jsonl"):
        report.load([tmp_path])


def test_a_folder_that_is_named_twice_is_an_error_that_names_it(tmp_path):
    study = synthetic.study(tmp_path / "study", tasks=2)
    with pytest.raises(DrKernelError, match=r"compare: found .*study twice, expected each study once"):
        report.load([study, tmp_path / "study" / ".." / "study"])


def test_the_page_knows_the_references_that_the_study_kept(tmp_path, folder):
    task = json.loads((folder / RESULTS).read_text().splitlines()[0])["task"]
    (folder / "tasks.jsonl").write_text(json.dumps({"id": task, "source": "class Model: ..."}) + "\n")
    assert report.sources([folder]) == {task: "class Model: ..."}


def test_saved_answers_whose_tokens_nobody_counted_are_reported_like_any_others(tmp_path):
    path = tmp_path / "saved" / RESULTS
    saved = {"tokens": 0, "prompt_tokens": 0, "generate_s": 0.0, "strategy": "solutions"}
    path.parent.mkdir()
    write(path, [dataclasses.replace(record, **saved) for record in synthetic.records(tasks=6, trials=1, calls=2)])
    report.write([path.parent], tmp_path / "report", "saved answers")
    text = (tmp_path / "report" / "table.md").read_text()
    assert "equal budgets of seconds" in text and "equal budgets of generated tokens" not in text
    assert (tmp_path / "report" / "index.html").exists() and (tmp_path / "report" / "fast_calls.png").exists()


@pytest.mark.usefixtures("no_plots")
def test_answers_that_were_not_judged_are_told_and_count_nowhere(tmp_path):
    rows = synthetic.records(tasks=5)[:40]
    failed = dataclasses.replace(rows[0], trial=99, verdict=Verdict("judge_failure", "worker_lost", "it died"))
    for name, found in (("judged", rows), ("partly", [*rows, failed])):
        (tmp_path / name).mkdir()
        write(tmp_path / name / RESULTS, found)
        report.write([tmp_path / name], tmp_path / f"{name} report", "title")
    table, other = ((tmp_path / f"{name} report" / "table.csv").read_text() for name in ("judged", "partly"))
    assert table == other
    page = (tmp_path / "partly report" / "table.md").read_text()
    assert "partly: the judge failed on 1 of 41 completions; they are not counted" in page


@pytest.mark.usefixtures("no_plots")
def test_a_turn_that_a_stopped_study_has_twice_counts_once_and_as_it_was_last(tmp_path):
    rows = synthetic.records(tasks=5)[:40]
    failed = dataclasses.replace(rows[0], verdict=Verdict("judge_failure", "worker_lost", "it died"))
    changed = dataclasses.replace(rows[1], started=0.0, source="before", verdict=Verdict("incorrect", "wrong_values"))
    for name, found in (("whole", rows), ("stopped", [failed, changed, *rows])):
        (tmp_path / name).mkdir()
        write(tmp_path / name / RESULTS, found)
        report.write([tmp_path / name], tmp_path / f"{name} report", "title")
    for file in ("table.csv", "table.md"):
        whole, stopped = ((tmp_path / f"{name} report" / file).read_text() for name in ("whole", "stopped"))
        assert whole == stopped


@pytest.mark.usefixtures("no_plots")
def test_the_share_of_the_limit_has_a_column_where_verdicts_have_it(tmp_path):
    def with_share(record):
        evidence = record.verdict.evidence | {"roofline": {"share": 0.413}}
        return dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, evidence=evidence))

    rows = synthetic.records(tasks=6, trials=1)
    for name, records in (("without", rows), ("with", list(map(with_share, rows)))):
        (tmp_path / name).mkdir()
        write(tmp_path / name / RESULTS, records)
        report.write([tmp_path / name], tmp_path / f"{name} report", "title")
    without, table = ((tmp_path / f"{name} report" / "table.md").read_text() for name in ("without", "with"))
    by_level = table.split("## By level")[1].split("##")[0]
    assert "| roofline |" in by_level.splitlines()[2] and "| 41.3% |" in by_level
    assert "| roofline |" not in without
