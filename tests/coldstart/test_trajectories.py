"""`python -m drkernel.coldstart` writes judged trajectories in the published schema; a policy learns from them, and
reinforcement learning goes on with it."""

import itertools
import json
import os
import random
from itertools import islice
from pathlib import Path

import pytest
from pyarrow import parquet

from drkernel.coldstart import __main__ as coldstart
from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.counts import Counts
from drkernel.coldstart.dataset import write as write_set
from drkernel.coldstart.trajectories import (
    SCHEMA,
    JudgedSolution,
    draw_solutions,
    draw_unjudged,
    record,
    unjudged_record,
)
from drkernel.config import REPOSITORY, SftConfig
from drkernel.judge import feedback
from drkernel.policy import load_prompts, load_tokenizer
from drkernel.policy.model import Policy
from drkernel.tasks import generate, load_tasks
from drkernel.tasks.generators import programs
from drkernel.training import sft_data
from drkernel.training.ranks import Ranks
from drkernel.training.supervised import row_of
from drkernel.types import Trajectory, Turn, Verdict
from tests import commands
from tests.training.chat_policy import chat_policy, chat_tokenizer

PUBLISHED = {
    "messages": "list<element: struct<role: string, content: string>>",
    "uuid": "int64",
    "entry_point": "string",
    "repo_name": "string",
    "module_name": "string",
    "final_speedup": "double",
    "num_rounds": "int64",
    "original_python_code": "string",
    "best_round": "int64",
    "timestamp": "double",
    "conversion_mode": "string",
    "enable_thinking": "bool",
}
TASK = generate("train", 1, 0)[0]
WRONG = JudgedSolution("mistaken", "class ModelNew: wrong\n", Verdict("incorrect", "wrong_values", "at 0: 1 for 2"))


def right(kind: str, speedup: float) -> JudgedSolution:
    source = f"class ModelNew: {kind}\n"
    return JudgedSolution(kind, source, Verdict("ok", "faster", speedup=speedup, coverage=0.5))


DRAWN = [WRONG, right("fused", 2.5), right("partial", 1.5)]


def test_a_record_has_the_published_columns(tmp_path):
    write_set(tmp_path / "t.parquet", [record(TASK, DRAWN, 0)])
    found = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "t.parquet")}
    assert {name: kind.replace("item:", "element:") for name, kind in found.items() if name in PUBLISHED} == PUBLISHED
    (row,) = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert (row["num_rounds"], row["best_round"], row["final_speedup"]) == (3, 2, 2.5)
    assert row["speedups"] == [None, 2.5, 1.5] and row["grades"] == ["mistaken", "fused", "partial"]
    assert [m["role"] for m in row["messages"]] == ["user", "assistant"] * 3
    assert row["messages"][0]["content"] == row["original_python_code"] == TASK.source
    assert row["messages"][2]["content"] == "wrong: wrong_values: at 0: 1 for 2"


def test_records_are_told_apart_and_are_the_same_each_time():
    assert record(TASK, DRAWN, 0) == record(TASK, DRAWN, 0)
    assert len({record(TASK, DRAWN, number)["uuid"] for number in range(100)}) == 100
    assert all(0 <= record(TASK, DRAWN, number)["uuid"] < 2**63 for number in range(100))
    assert record(TASK, [WRONG, WRONG], 0)["best_round"] == 0 == record(TASK, [WRONG], 0)["final_speedup"]


def test_turns_get_better_and_mistakes_are_repaired():
    best, lazy = right("fused", 2.5), right("lazy", 1.0)
    played = [draw_solutions([WRONG, lazy, best], 3, 0.3, random.Random(seed)) for seed in range(300)]
    pairs = [pair for turns in played for pair in itertools.pairwise(turns)]
    repaired = [after is best for before, after in pairs if before is WRONG]
    assert len(repaired) > 50 and 0.8 < sum(repaired) / len(repaired) < 0.95
    kept = [after is best for before, after in pairs if before is best]
    assert 0.85 < sum(kept) / len(kept) < 0.97, "what is the best already is not given up"
    assert {turns[0].kind for turns in played} == {"mistaken", "lazy", "fused"}


def test_an_answer_that_nobody_judged_is_one_round_and_the_best_one(tmp_path):
    task = generate("train", 1, 0, generator="graphs", families=["pools"])[0]
    solution = draw_unjudged(task, 1.0, random.Random(0))
    assert solution and solution.kind == "fused" and "class ModelNew" in solution.source
    drawn = [draw_unjudged(task, 0.3, random.Random(seed)) for seed in range(40)]
    grades = {solution.kind for solution in drawn if solution}
    assert "fused" in grades and not grades & {"mistaken", "hack"}
    write_set(tmp_path / "t.parquet", [unjudged_record(task, solution, 0)])
    (row,) = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert (row["num_rounds"], row["best_round"], row["speedups"], row["reasons"]) == (1, 1, [None], ["not_judged"])
    assert [m["content"] for m in row["messages"]] == [task.source, solution.source]


def test_answers_are_written_from_the_lines_of_a_task_where_they_have_one():
    for task in islice(programs.stream("train", 0), 6):
        solution = draw_unjudged(task, 0.3, random.Random(0))
        assert (solution.source if solution else None) == by_lines(task)
    for task in generate("train", 6, 0, generator="graphs", families=["gates", "softmaxes"]):
        assert (answer := by_lines(task)) is None or draw_unjudged(task, 0.3, random.Random(1)).source == answer


def played(task, drawn, prompts, told) -> Trajectory:
    """Solutions as tokens, laid out as a rollout produces them."""
    trajectory = Trajectory(task.id, 0, 0)
    for k, solution in enumerate(drawn):
        prompt = prompts.next(told(drawn[k - 1].verdict)) if k else prompts.first(task)
        response = prompts.completion(solution.source)
        trajectory.turns.append(Turn(prompt, response, [0.0] * len(response), solution.source, solution.verdict))
    return trajectory


@pytest.mark.parametrize("style", ["chat", "compact"])
@pytest.mark.parametrize("limit", [12, 1000])
def test_training_on_a_record_is_training_on_the_trajectory(style, limit, tmp_path):
    tokenizer = chat_tokenizer() if style == "chat" else load_tokenizer(REPOSITORY / "assets/seed")
    prompts = load_prompts(style, tokenizer)
    write_set(tmp_path / "t.parquet", [record(TASK, DRAWN, 0)])
    renderer = sft_data.Renderer(prompts, SftConfig(held_out=0), 10_000, limit)
    (found,) = sft_data.load(str(tmp_path / "t.parquet"), renderer, Ranks()).train
    told = lambda verdict: feedback(verdict, limit, prompts.count)
    expected = row_of(played(TASK, DRAWN, prompts, told))
    assert found.tokens.tolist() == expected.tokens.tolist() and found.trains.tolist() == expected.trains.tolist()


def test_the_tables_count_grades_turns_lengths_and_operators():
    counts = Counts()
    rows = [(TASK, record(TASK, DRAWN, 0)), (TASK, record(TASK, DRAWN[::-1], 1))]
    assert list(counts.seen(iter(rows))) == [row for _, row in rows]
    assert counts.trajectories == 2 and counts.operators == dict.fromkeys(TASK.info["composition"], 2)
    assert counts.by_grade == {"mistaken": [None] * 2, "fused": [2.5] * 2, "partial": [1.5] * 2}
    assert [counts.gains[turn] for turn in (1, 2, 3)] == [0, 2, 0], "2.5 after a wrong one, and after 1.5"
    titles = [table.title for table in counts.tables()]
    assert titles == ["turns by grade", "gain by turn", "characters of a trajectory", "trajectories by operator"]


def test_verdicts_of_another_device_are_not_mixed_in(tmp_path, capsys):
    line = {"task": "t", "source": "s", "verdict": Verdict("ok", "faster", device="cuda:NVIDIA H200").to_dict()}
    (tmp_path / "t.parquet.verdicts.jsonl").write_text(json.dumps(line) + "\n")
    words = ["--tasks", "1", "--out", str(tmp_path / "t.parquet"), "--device", "simulated"]
    assert coldstart.main(words) == 2
    assert "has verdicts of cuda:NVIDIA H200, expected simulated:H200" in capsys.readouterr().err


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, str]:
    """A file of trajectories, and what was printed."""
    path = tmp_path_factory.mktemp("made") / "trajectories.parquet"
    return path, write(path, 3)


def write(path: Path, tasks: int) -> str:
    words = [
        "--tasks",
        str(tasks),
        "--out",
        str(path),
        "--device",
        "simulated",
        "--workers",
        "2",
        "--trajectories",
        "4",
    ]
    arguments = [str(REPOSITORY / "src/drkernel/coldstart/__main__.py"), *words]
    done = commands.run(arguments, timeout=300)
    assert done.returncode == 0, done.output
    return done.output


pytestmark = pytest.mark.xdist_group("trajectories")


@pytest.mark.slow
def test_the_command_judges_once_and_goes_on_where_it_was_stopped(made, tmp_path):
    path, printed = made
    rows = parquet.read_table(path)
    assert rows.schema == SCHEMA and rows.num_rows == 12 and "12 trajectories of 3 tasks" in printed
    kept = path.with_name("trajectories.parquet.verdicts.jsonl").read_text()
    other = tmp_path / "trajectories.parquet"
    cut = kept[: len(kept) // 2]  # as a killed run leaves it, in the middle of a line
    other.with_name("trajectories.parquet.verdicts.jsonl").write_text(cut)
    write(other, 3)
    assert parquet.read_table(other).equals(rows)
    assert len(other.with_name("trajectories.parquet.verdicts.jsonl").read_text().splitlines()) == len(
        kept.splitlines()
    )
    more = write(path, 4)
    assert "16 trajectories of 4 tasks" in more and parquet.read_table(path).slice(0, 12).equals(rows)


@pytest.mark.slow
def test_the_file_is_a_set_of_tasks_too(made):
    tasks = load_tasks(str(made[0]), split="train")
    assert {task.source for task in tasks} <= {task.source for task in generate("train", 4, 0)}


@pytest.mark.slow
def test_a_policy_from_nothing_learns_a_set_and_goes_on_where_it_was_stopped(made, tmp_path):
    words = ["train.py", "coldstart=seed_8m", "logger=none", f"sft.data={made[0]}", f"hydra.run.dir={tmp_path}"]
    words += ["coldstart.hidden=64", "coldstart.layers=2", "coldstart.vocabulary=400", "trainer.threads=1"]
    words += ["sft.epochs=8", "sft.batch_tokens=8192", "sft.held_out=0.3"]
    done = commands.run([*words, "sft.max_steps=2"], REPOSITORY, os.environ, 300)
    assert done.returncode == 0, done.output
    begun = (tmp_path / "start" / "model.safetensors").read_bytes()
    done = commands.run([*words, "sft.max_steps=4"], REPOSITORY, os.environ, 300)
    assert done.returncode == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4] and lines[-1]["loss"] < lines[1]["loss"]
    assert (tmp_path / "start" / "model.safetensors").read_bytes() == begun
    policy = Policy.load(tmp_path / "policy")
    assert policy.model.config.num_key_value_heads == 1 and len(load_tokenizer(tmp_path / "policy")) == 400


@pytest.mark.slow
def test_from_generated_data_to_a_supervised_policy_to_a_step_of_reinforcement_learning(made, tmp_path):
    chat_policy(tmp_path / "policy")
    common = ["policy.prompts=chat", "logger=none", "trainer.threads=1"]
    learn = [f"policy.path={tmp_path / 'policy'}", f"sft.data={made[0]}", "sft.max_length=8192", "sft.held_out=0.3"]
    learn += ["sft.batch_size=4", "sft.epochs=1", "sft.lr=1e-3", f"hydra.run.dir={tmp_path / 'sft'}", "stage=sft"]
    done = commands.run(["train.py", *common, *learn], REPOSITORY, os.environ, 300)
    assert done.returncode == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "sft" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["held_out"] < lines[0]["held_out"]
    play = [f"policy.path={tmp_path / 'sft' / 'policy'}", f"hydra.run.dir={tmp_path / 'rl'}", "filters=none"]
    play += ["trainer.steps=1", "trainer.prompts=1", "trainer.samples=2", "trainer.turns=2", "tasks.count=1"]
    play += ["engine.max_tokens=8192", "engine.max_answer_tokens=16", "engine.slots=2"]
    play += ["tasks.eval_count=1", "trainer.eval_samples=1", "judge.workers=1", "judge.device=simulated"]
    done = commands.run(["train.py", *common, *play], REPOSITORY, os.environ, 300)
    assert done.returncode == 0, done.output
    (line,) = [json.loads(line) for line in (tmp_path / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert line["step"] == 1 and line["rollouts"] == 2 and line["skipped"] == 0
