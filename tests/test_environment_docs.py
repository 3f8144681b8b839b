"""Every example of docs/environment.md runs as it is written, but for the address of the server."""

from __future__ import annotations

import sys
import textwrap
import types
from pathlib import Path

import pytest

from drkernel.judge import Judge
from drkernel.judge.network.server import HttpServer
from tests import judge_workers

ROOT = Path(__file__).parents[1]
ADDRESS = "http://127.0.0.1:8000"


def examples() -> dict[str, str]:
    """The Python programs of the page, by the heading that they are under."""
    found = {}
    for section in (ROOT / "docs/environment.md").read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("    ") or not line]
        if any(line.startswith(("    import", "    from")) for line in lines):
            start = next(i for i, line in enumerate(lines) if line.startswith(("    import", "    from")))
            found[heading] = textwrap.dedent("\n".join(lines[start:]))
    return found


@pytest.fixture(scope="module")
def address():
    judge_workers.use()
    with Judge(device="simulated", workers=1) as judge, HttpServer(judge, "127.0.0.1", 0) as server:
        yield server.url


class Trainer:
    """Calls a reward function as TRL's does, with one answer for each prompt."""

    def __init__(self, model, reward_funcs, args, train_dataset):
        self.reward, self.rows = reward_funcs, list(train_dataset)

    def train(self) -> None:
        completions = [[{"role": "assistant", "content": "```python\nclass ModelNew: ...\n```"}] for _ in self.rows]
        columns = {"task": [row["task"] for row in self.rows], "prompts": [row["prompt"] for row in self.rows]}
        print(self.reward(completions=completions, completion_ids=[[0]] * len(self.rows), **columns))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("A server", "ok 2.2"),
        ("An environment", "0.0 hack no_triton_kernel\n" * 3),
        ("TRL", "[0.0, 0.0, 0.0, 0.0]"),
    ],
)
def test_an_example_runs_as_it_is_written(heading, said, address, monkeypatch, capsys):
    stand_in = types.ModuleType("trl")
    stand_in.GRPOTrainer, stand_in.GRPOConfig = Trainer, lambda **_: None
    monkeypatch.setitem(sys.modules, "trl", stand_in)
    monkeypatch.chdir(ROOT)
    assert examples()[heading].count(ADDRESS) == 1
    exec(compile(examples()[heading].replace(ADDRESS, address), heading, "exec"), {})
    assert said in capsys.readouterr().out


def test_every_program_of_the_page_is_tried():
    assert set(examples()) == {"A server", "An environment", "TRL"}
