"""The same comparisons that benchmarks/exactness.py makes on a GPU, in small on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_packing_merged_turns_chunks_and_micro_batches_leave_the_gradient_as_it_is(tmp_path):
    command = [sys.executable, "benchmarks/exactness.py", str(tmp_path), "--shape", "tiny"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "exactness.json").read_text())
    assert len(report["rows"]) == 6 and all(row["ok"] for row in report["rows"])
