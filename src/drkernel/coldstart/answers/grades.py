"""The answers of a task by grade.

lazy      one kernel computes the simplest operator, PyTorch everything else
partial   a kernel computes several operators, PyTorch others that it need not
fused     all that can be fused is
best      as fused, where another order or another product is expected to be faster
mistaken  the fused answer with one realistic mistake; see mistakes.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from drkernel.coldstart.answers.context import Context
from drkernel.coldstart.answers.elementwise import is_element
from drkernel.coldstart.answers.mistakes import mistakes
from drkernel.coldstart.answers.partition import FREE, LIBRARY_OPS, Plan, in_library, partition
from drkernel.coldstart.answers.schemes import scheme_of
from drkernel.coldstart.answers.solution import Kind, Solution
from drkernel.coldstart.answers.style import Style
from drkernel.coldstart.answers.submission import Written, compose, render
from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.types import Task

SMALL_INNER = 128
"""Products that join fewer elements are bound by memory: a kernel of one's own saves a pass."""


def answers(task: Task, wrong: int = 4, seed: int = 0, plan: bool = False, plain: bool = False) -> list[Solution]:
    """The answers of a task of `graphs`, the same at each call: right ones, the fused ones last, then mistakes.

    Args:
        task: from `tasks.generators.graphs`.
        wrong: how many mistaken ones, or as many as the task allows.
        seed: of what varies in their surface.
        plan: whether the text begins with the plan.
        plain: all in one style.
    """
    context = Context.of(task)
    rng = random.Random(f"{task.id}/{seed}")
    found: dict[str, Solution] = {}
    fused: Written | None = None
    whole = ""
    for kind, note, chosen in plans(context, rng):
        steps = partition(context, chosen)
        if not any(step.scheme for step in steps):
            continue
        written = compose(context, steps, rng, Style.draw(rng, plain))
        source = render(context, written, plan)
        if kind == "fused" and fused is None:
            fused, whole = written, source
        key = written.shape
        if key not in found or kind == "fused":
            found[key] = Solution(kind, source, note)
    right = sorted(found.values(), key=lambda solution: ("lazy", "partial", "best", "fused").index(solution.kind))
    if fused is None or not wrong:
        return right
    made = [Solution("mistaken", render(context, bad, plan), note) for note, bad in mistakes(context, fused)]
    made = [solution for solution in made if solution.source != whole]
    return [*right, *rng.sample(made, min(wrong, len(made)))]


def plans(context: Context, rng: random.Random) -> Iterator[tuple[Kind, str, Plan]]:
    """(kind, note, plan) of the right answers."""
    nodes = context.graph.nodes
    owned = _owned(context)
    inside = [node for node in nodes if not in_library(node, Plan(owned=owned)) and node.op not in FREE]
    elements = [node for node in inside if is_element(node)] or inside
    if len(nodes) > 1 and elements:
        kept = rng.choice(elements)
        yield "lazy", "one_operator", Plan(frozenset(node.id for node in nodes if node is not kept))
    if len(inside) > 2:
        yield "partial", "last_in_torch", Plan(frozenset({inside[-1].id}), owned)
        yield "partial", "first_in_torch", Plan(frozenset({inside[0].id}), owned)
    if len(inside) > 1:
        yield "partial", "one_kernel_each", Plan(owned=owned, most=1)
    if own := _worth_owning(context, owned):
        yield "best", "own_product", Plan(owned=own)
    yield "fused", "fused", Plan(owned=owned)


def _owned(context: Context) -> frozenset[str]:
    """Convolutions, products and attentions that kernels have to compute, since nothing else is left to do."""
    nodes = context.graph.nodes
    library = [node for node in nodes if in_library(node, Plan()) and node.op not in LIBRARY_OPS]
    others = [node for node in nodes if node not in library and node.op not in (*FREE, *LIBRARY_OPS)]
    triangles = any(value.distribution in ("upper", "lower") for value in context.graph.inputs)
    chosen = library if not others or triangles else []
    return frozenset(node.id for node in chosen if scheme_of(context, [node]))


def _worth_owning(context: Context, owned: frozenset[str]) -> frozenset[str]:
    """With a product that joins few elements and is followed by others."""
    first = context.graph.nodes[0]
    if first.id in owned or OPS[first.op].kind != "product" or not scheme_of(context, [first]):
        return frozenset()
    inner = context.shape(first.inputs[-2 if first.op == "addmm" else 0])[-1]
    return owned | {first.id} if count((inner,)) <= SMALL_INNER else frozenset()
