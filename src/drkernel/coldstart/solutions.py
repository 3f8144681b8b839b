"""Graded solutions of generated tasks: what a cold start learns from.

All are built from the task's composition in one compact style. The grade (`Kind`) of a solution follows from how it is
built:

    fused     one kernel computes everything, but for a leading linear layer
    partial   a kernel computes most, torch the first operator, the last one or the matrix product
    lazy      a kernel computes one stage, torch everything else
    mistaken  the fused solution with one realistic mistake (`solutions_wrong.EDITS`)
    hack      torch computes everything, and a kernel is launched whose output nobody uses

What the judge finds is another matter: a partial solution may be no faster than the reference.
"""

from __future__ import annotations

import random
from typing import Any

from drkernel.coldstart.answers.grades import answers
from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.answers.solution import Kind, Solution
from drkernel.coldstart.kernels import Kernel, build
from drkernel.coldstart.solutions_wrong import mistakes
from drkernel.tasks.generators import programs
from drkernel.tasks.generators.operators import OPERATORS
from drkernel.tasks.generators.operators.families import FAMILIES
from drkernel.tasks.generators.operators.writer import dtype_statement, has_second_input, spell
from drkernel.types import DrKernelError, Task

__all__ = ["Kind", "Solution", "solutions"]


def solutions(task: Task, wrong: int = 4, plain: bool = False) -> list[Solution]:
    """The solutions of a generated task, the same at each call: the right ones, then mistakes, then one hack.

    Args:
        task: from `tasks.generators`; its `info` describes the composition, or has the graph (`coldstart.answers`). A
            free program has one solution at most, by its lines.
        wrong: how many mistaken ones, or as many as the task allows.
        plain: in one style, where the generator has several.

    Raises:
        DrKernelError: the task does not come from the generator.
    """
    info = task.info
    if "graph" in info:
        source = by_lines(task) if wrong else None
        return [*([Solution("partial", source, "by_lines")] if source else []), *answers(task, wrong, plain=plain)]
    if task.family in programs.FAMILIES:
        source = by_lines(task)
        return [Solution("partial", source, "by_lines")] if source else []
    if "composition" not in info or "layout" not in info:
        raise DrKernelError(f"task {task.id}: graded solutions exist for generated tasks only")
    right = [Solution(kind, _render(info, plan), note) for kind, note, plan in _plans(info)]
    draw = random.Random(task.id)
    mistaken = [Solution("mistaken", source, note) for note, source in mistakes(info, right[-1].source)]
    hacks = [Solution("hack", _dead_kernel(info), "dead_kernel"), Solution("hack", _decoy(info), "decoy")]
    return [*right, *draw.sample(mistaken, min(wrong, len(mistaken))), draw.choice(hacks)]


Plan = tuple[list[str], list[str], list[str]]
"""Operators in three parts: what torch computes before the kernel, what the kernel computes, what torch does after."""


def _plans(info: dict[str, Any]) -> list[tuple[Kind, str, Plan]]:
    """(kind, note, plan) of the right solutions, those that do least in Triton first and `fused` last."""
    operators = info["composition"]
    product = operators[:1] if OPERATORS[operators[0]].template == "product" else []
    rest = operators[len(product) :]
    plans: list[tuple[Kind, str, Plan]] = []
    stages = [place for place, name in enumerate(operators) if OPERATORS[name].is_stage]
    if stages and len(operators) > 1:
        last = stages[-1]
        plans.append(("lazy", "one_stage", (operators[:last], [operators[last]], operators[last + 1 :])))
    if len(rest) > 2:
        plans.append(("partial", "first_in_torch", (product + rest[:1], rest[1:], [])))
    if len(rest) > 2 or (len(rest) == 2 and OPERATORS[rest[0]].template not in ("elementwise", "transpose")):
        plans.append(("partial", "last_in_torch", (product, rest[:-1], rest[-1:])))
    if FAMILIES[info["family"]].lead:
        return [*plans, ("fused", "library_product", (product, rest, []))]
    if product and len(rest) > 1:
        plans.append(("partial", "library_product", (product, rest, [])))
    return [*plans, ("fused", "one_kernel", ([], operators, []))]


def _render(info: dict[str, Any], plan: Plan) -> str:
    """The submission that follows a plan."""
    before, inside, after = plan
    kernel = build(info, inside)
    lines = [*_torch(info, before, "x"), *kernel.call(), *_torch(info, after, "o"), f"return {kernel.result}"]
    return _file(info, kernel, lines)


def _torch(info: dict[str, Any], operators: list[str], value: str, target: str = "") -> list[str]:
    """Statements that apply operators to `value` in torch and leave the result in `target` (or in `value`)."""
    lines, target = [], target or value
    for name in operators:
        op = OPERATORS[name]
        layer = op.parameters and info["style"]["spelling"][name] == "layer"
        lines += [op.prepare.format(x=value)] if op.prepare else []
        lines.append(f"{target} = {spell(info, name, value, 'y', 'layer' if layer else 'functional')}")
        value = target
    return lines


def _dead_kernel(info: dict[str, Any]) -> str:
    """A hack: a kernel copies the input, nobody uses the copy, and torch computes the output."""
    copy = build(info, [])
    return _file(info, copy, [*copy.call(), *_torch(info, info["composition"], "x"), "return x"])


def _decoy(info: dict[str, Any]) -> str:
    """A hack: the fused kernel is launched, nobody uses its output, and torch computes it again."""
    operators = info["composition"]
    product = operators[:1] if FAMILIES[info["family"]].lead else []
    kernel = build(info, operators[len(product) :])
    lines = [*_torch(info, operators, "x", "answer"), *_torch(info, product, "x"), *kernel.call(), "return answer"]
    return _file(info, kernel, lines)


def _file(info: dict[str, Any], kernel: Kernel, forward: list[str]) -> str:
    """A submission: imports, the kernel, and a `ModelNew` with the parameters of the reference in the same order."""
    lines = ["import torch", "import torch.nn as nn"]
    if any("F." in line for line in forward):
        lines.append("import torch.nn.functional as F")
    lines += [
        "import triton",
        "import triton.language as tl",
        "",
        *kernel.definition(),
        "",
        "class ModelNew(nn.Module):",
    ]
    if info["modules"]:
        lines += [f"    def __init__({', '.join(['self', *info['args']])}):", "        super().__init__()"]
        lines += [*(f"        self.{name} = {constructor}" for name, constructor in info["modules"])]
        lines += [*(f"        {line}" for line in dtype_statement(info)), ""]
    inputs = ["self", "x", *["y"] * has_second_input(info["composition"])]
    lines += [f"    def forward({', '.join(inputs)}):", *(f"        {line}" for line in forward)]
    return "\n".join(lines) + "\n"
