"""What one look at a folder of studies shows, where no Slurm knows of them."""

import os
from pathlib import Path

import pytest

from drkernel.config.conversion import to_yaml
from sweeps import state, table
from tests.configs import evaluate_config


def study(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(evaluate_config()))
    (folder / "starts.jsonl").write_text("{}\n")
    (folder / "results.jsonl").write_text("{}\n")
    return folder


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch):
    monkeypatch.setattr(state.queue, "queued", lambda: None)


def test_a_study_with_its_report_is_done_and_has_no_steps(tmp_path):
    study(tmp_path / "seed=0")
    report = study(tmp_path / "seed=1") / "report" / "table.md"
    report.parent.mkdir()
    report.write_text("# study")
    runs = state.look(tmp_path)
    assert [(run.seed, run.state, run.steps) for run in runs] == [("0", "stopped", None), ("1", "done", None)]
    assert "evaluate.py compare=" in table.markdown(runs)


def test_a_study_that_went_on_after_its_report_is_not_done(tmp_path):
    folder = study(tmp_path / "seed=0")
    (folder / "report").mkdir()
    (folder / "report" / "table.md").write_text("# study")
    os.utime(folder / "report" / "table.md", (1, 1))
    assert [run.state for run in state.look(tmp_path)] == ["stopped"]
    assert table.markdown(state.look(tmp_path)) == "No run is done yet."
