import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import drkernel
from drkernel.coldstart.answers.context import Context
from drkernel.coldstart.answers.coverage import tokens
from drkernel.coldstart.answers.grades import answers
from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.answers.mistakes import EDITS
from drkernel.coldstart.answers.partition import Plan, partition
from drkernel.coldstart.solutions import Solution, solutions
from drkernel.judge import Judge
from drkernel.tasks.generators.graphs.draw import FAMILIES
from drkernel.tasks.generators.graphs.stream import families_of, stream
from drkernel.types import Task

SINGLE = "pointwise,broadcast,reductions,softmaxes,scans,norms,pools,losses,views,convolutions,products,lookups"
CHAINS = "conv_chain,linear_chain,product_chain,plain_chain"
NETWORKS = ",".join(name for name in FAMILIES if name not in f"{SINGLE},{CHAINS}".split(","))
BOUND = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def drawn(count: int, families: str = "", seed: int = 5) -> list[Task]:
    names = families.split(",") if families else list(FAMILIES)
    return list(islice(stream("train", seed, names, "float32"), count))


def started(program: str, *arguments: str, interpret: str = "1") -> Any:
    source = str(Path(drkernel.__file__).parents[1])
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(program)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def run(families: str, count: int, dtype: str = "float32") -> list[dict]:
    return started("numeric.py", families, str(count), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_compiler_takes_what_the_interpreter_runs(dtype: str) -> None:
    found = started("compiled.py", "80", dtype, interpret="0")
    assert found["kernels"] > 80
    assert not found["refused"]


@pytest.mark.slow
@pytest.mark.parametrize(("families", "count"), [(SINGLE, 60), (CHAINS, 30), (NETWORKS, 20)])
def test_answers_are_right(families: str, count: int) -> None:
    rows = run(families, count)
    assert not [row for row in rows if not row["error"] <= BOUND["float32"]]
    assert len({row["task"] for row in rows}) >= 0.9 * count


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_answers_of_16_bits_are_right(dtype: str) -> None:
    rows = run(",".join(families_of(dtype, list(FAMILIES))), 24, dtype)
    assert not [row for row in rows if not row["error"] <= BOUND[dtype]]


def test_nearly_every_task_has_an_answer_and_texts_are_short() -> None:
    tasks = drawn(80)
    fused = [next((a for a in answers(task, wrong=0) if a.kind == "fused"), None) for task in tasks]
    lengths = sorted(tokens(answer.source) for answer in fused if answer)
    assert len(lengths) >= 0.95 * len(tasks)
    assert lengths[len(lengths) // 2] < 900


def test_answers_are_the_same_at_each_call_and_differ_by_seed() -> None:
    task = drawn(1, "conv_chain")[0]
    assert answers(task) == answers(task)
    assert {a.source for a in answers(task, seed=1)} != {a.source for a in answers(task, seed=2)}


def test_solutions_of_graphs_are_answers() -> None:
    task = drawn(1, "linear_chain")[0]
    assert solutions(task, 2) == [Solution("partial", by_lines(task) or "", "by_lines"), *answers(task, 2)]
    assert solutions(task, 0) == answers(task, 0)


def test_a_step_has_one_output_and_every_node_is_in_one_step() -> None:
    for task in drawn(40):
        context = Context.of(task)
        steps = partition(context, Plan())
        assert sorted(node.id for step in steps for node in step.nodes) == sorted(context.nodes)
        known = {value.name for value in context.graph.inputs}
        for step in steps:
            assert set(step.inputs) <= known, "a step reads what no earlier step leaves"
            known.add(step.output.id)


def test_the_plan_names_every_operator_and_traffic() -> None:
    task = drawn(1, "conv_chain")[0]
    text = next(a.source for a in answers(task, wrong=0, plan=True) if a.kind == "fused")
    plan = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert all(name in plan for name in task.info["composition"])
    assert "read" in plan and "write" in plan


@pytest.mark.slow
def test_mistakes_of_every_kind_occur_and_change_the_answer() -> None:
    seen = set()
    for task in drawn(60):
        found = answers(task, wrong=99)
        fused = [a.source for a in found if a.kind == "fused"]
        seen |= {a.note for a in found if a.kind == "mistaken"}
        assert not [a.note for a in found if a.kind == "mistaken" and a.source in fused]
    assert set(EDITS) - seen <= {"wrong_divisor", "wrong_shape"}


@pytest.mark.slow
def test_the_judge_finds_right_answers_ok_and_mistakes_not() -> None:
    """Of each task one right answer, the kinds in turn, and one mistake."""
    work = []
    for index, task in enumerate(drawn(40, seed=9)):
        kinds = [[], []]
        for answer in answers(task, wrong=2):
            kinds[answer.kind == "mistaken"].append(answer)
        work += [(task, found[index % len(found)]) for found in kinds if found]
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        verdicts = [(answer, judge.submit(task, answer.source)) for task, answer in work]
        right = [future.result().ok for answer, future in verdicts if answer.kind != "mistaken"]
        wrong = [future.result().ok for answer, future in verdicts if answer.kind == "mistaken"]
    assert sum(right) >= 0.97 * len(right)
    assert sum(wrong) <= 0.1 * len(wrong)


WINDOW = re.compile(
    r"^ +O[DHWN] = \(\w+ (\+ 2 \* \d+ - \d+ \* \(\d+ - 1\) - 1\) // \d+ \+ 1|- 1\) \* \d+ - 2 \* \d+ \+ )", re.M
)


def test_sizes_behind_windows_keep_the_modules_numbers():
    tasks = [task for task in drawn(400, seed=12) if re.search(r"/(conv|max_pool|avg_pool)[^+]*$", task.id)]
    written = [next(a.source for a in answers(task, wrong=0) if a.kind == "fused") for task in tasks]
    assert len(written) > 20 and all(WINDOW.search(source) for source in written)


@pytest.mark.slow
def test_each_side_of_a_product_has_a_name_of_its_own():
    tasks = [task for task in drawn(1500, seed=12) if re.search(r"/matmul\.(square|rectangular|tall)[^+]*$", task.id)]
    written = [next(a.source for a in answers(task, wrong=0) if a.kind == "fused") for task in tasks]
    sides = [re.search(r"new_empty\(\((\w+), (\w+)\)\)", source) for source in written]
    assert len(sides) > 5 and all(found and found[1] != found[2] for found in sides)


def test_plain_answers_have_one_style():
    heads = lambda plain: {
        found[1]
        for task in drawn(40, seed=5)
        for a in answers(task, 0, plain=plain)
        for found in HEAD.finditer(a.source)
    }
    assert heads(plain=True) == {"kernel"} < heads(plain=False)


HEAD = re.compile(r"^def ([a-z_]*kernel)\d*\(", re.M)
