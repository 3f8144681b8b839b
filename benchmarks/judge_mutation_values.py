"""Mutation operators that change what is computed: less of it, with less precision, or with other constants."""

from __future__ import annotations

import ast
import re

from judge_mutation import Draft, additions, bounds, keyword, loops, masks, operator, rebuilt


@operator("value")
def drop_term(draft: Draft) -> bool:
    """One side of a sum is left away."""
    node = draft.choose(additions(draft))
    return bool(node) and draft.replace(node, lambda _: ast.unparse(node.left))


@operator("value")
def drop_bias(draft: Draft) -> bool:
    """A term that is read from a bias is left away."""
    found = [node for node in additions(draft) if re.search(r"load\(b(ias)?_ptr", ast.unparse(node.right))]
    node = draft.choose(found)
    return bool(node) and draft.replace(node, lambda _: ast.unparse(node.left))


@operator("value")
def shorten_loop(draft: Draft) -> bool:
    """A loop ends after three quarters of its range."""
    call = draft.choose(loops(draft))
    if call is None:
        return False
    first, last, step = bounds(call)
    return draft.replace(call, lambda _: f"range({first}, {first} + ({last} - {first}) * 3 // 4, {step})")


@operator("value")
def skip_last_step(draft: Draft) -> bool:
    """A loop ends one step early."""
    call = draft.choose(loops(draft))
    if call is None:
        return False
    first, last, step = bounds(call)
    return draft.replace(call, lambda _: f"range({first}, {last} - {step}, {step})")


@operator("value")
def every_other_step(draft: Draft) -> bool:
    """A loop takes every other step."""
    call = draft.choose(loops(draft))
    if call is None:
        return False
    first, last, step = bounds(call)
    return draft.replace(call, lambda _: f"range({first}, {last}, 2 * ({step}))")


@operator("value")
def round_to_half(draft: Draft) -> bool:
    """A value that was loaded is rounded to bf16 or fp16."""
    dtype = draft.random.choice(["bfloat16", "float16"])
    return draft.replace_any(draft.calls("load"), lambda text: f"{text}.to(tl.{dtype}).to(tl.float32)")


@operator("value")
def sum_in_half(draft: Draft) -> bool:
    """What enters a sum is rounded to bf16 or fp16."""
    dtype, call = draft.random.choice(["bfloat16", "float16"]), draft.choose(draft.calls("sum"))
    return bool(call) and draft.replace(call.args[0], lambda text: f"({text}).to(tl.{dtype}).to(tl.float32)")


@operator("value")
def keep_in_half(draft: Draft) -> bool:
    """Results are rounded to bf16 or fp16 before they are stored."""
    dtype, call = draft.random.choice(["bfloat16", "float16"]), draft.choose(draft.calls("store"))
    return bool(call) and draft.replace(call.args[1], lambda text: f"({text}).to(tl.{dtype}).to(tl.float32)")


@operator("value")
def dot_in_tf32(draft: Draft) -> bool:
    """A product in TF32 instead of fp32."""
    call = draft.choose(draft.calls("dot"))
    if call is None:
        return False
    if draft.random.random() < 0.5:
        return rebuilt(draft, call, input_precision="", allow_tf32="True")
    return rebuilt(draft, call, allow_tf32="", input_precision="'tf32'")


@operator("value")
def dot_in_half(draft: Draft) -> bool:
    """A product of operands in bf16 or fp16."""
    dtype, call = draft.random.choice(["bfloat16", "float16"]), draft.choose(draft.calls("dot"))
    if call is None:
        return False
    left, right = (f"({ast.unparse(argument)}).to(tl.{dtype})" for argument in call.args[:2])
    rest = [ast.unparse(argument) for argument in call.args[2:]]
    return draft.replace(call, lambda _: f"tl.dot({', '.join([left, right, *rest])})")


@operator("value")
def no_epsilon(draft: Draft) -> bool:
    """An epsilon becomes 0."""
    names = [n for n in draft.in_kernels(ast.Name) if n.id == "eps" and isinstance(n.ctx, ast.Load)]
    return draft.replace_any(names + _small_constants(draft), lambda _: "0.0")


@operator("value")
def large_epsilon(draft: Draft) -> bool:
    """An epsilon is ten or a hundred times as large."""
    factor = draft.random.choice(["10.0", "100.0"])
    names = [n for n in draft.in_kernels(ast.Name) if n.id == "eps" and isinstance(n.ctx, ast.Load)]
    return draft.replace_any(names + _small_constants(draft), lambda text: f"({text} * {factor})")


def _small_constants(draft: Draft) -> list[ast.Constant]:
    return [
        n for n in ast.walk(draft.tree) if isinstance(n, ast.Constant) and type(n.value) is float and 0 < n.value < 1e-2
    ]


@operator("value")
def other_constant(draft: Draft) -> bool:
    """A constant of a formula is rounded to two digits, or changed by a thousandth."""
    found = [n for n in draft.in_kernels(ast.Constant) if type(n.value) is float and n.value not in (0.0, float("inf"))]
    short = draft.random.random() < 0.5
    return draft.replace_any(found, lambda text: f"{float(text):.2g}" if short else f"({text} * 1.001)")


@operator("value")
def read_pairs(draft: Draft) -> bool:
    """Every other element is read, and stands for its neighbour as well."""
    found = [a for call in draft.calls("load") for a in [call.args[0]] if isinstance(a, ast.BinOp)]
    node = draft.choose(found)
    return bool(node) and draft.replace(node.right, lambda text: f"({text}) // 2 * 2")


@operator("value")
def load_half(draft: Draft) -> bool:
    """The mask of a load ends half-way."""
    mask = draft.choose([m for m in masks(draft, "load") if isinstance(m.value, ast.Compare)])
    return bool(mask) and draft.replace(mask.value.comparators[0], lambda text: f"(({text}) + 1) // 2")


@operator("value")
def store_half(draft: Draft) -> bool:
    """The mask of a store ends half-way; the rest is what the memory held."""
    mask = draft.choose([m for m in masks(draft, "store") if isinstance(m.value, ast.Compare)])
    return bool(mask) and draft.replace(mask.value.comparators[0], lambda text: f"(({text}) + 1) // 2")


@operator("value")
def one_element_less(draft: Draft) -> bool:
    """The mask of a load or a store ends one element early."""
    found = [m for m in masks(draft, "load", "store") if isinstance(m.value, ast.Compare)]
    mask = draft.choose(found)
    return bool(mask) and draft.replace(mask.value.comparators[0], lambda text: f"({text}) - 1")


@operator("value")
def no_mask(draft: Draft) -> bool:
    """A load or a store has no mask."""
    call = draft.choose([c for c in draft.calls("load", "store") if keyword(c, "mask")])
    return bool(call) and rebuilt(draft, call, mask="", other="")


@operator("value")
def no_maximum(draft: Draft) -> bool:
    """The maximum that a softmax takes away is 0."""
    return draft.replace_any(draft.calls("max"), lambda _: "0.0")


@operator("value")
def constant_sum(draft: Draft) -> bool:
    """A sum is a constant."""
    value = draft.random.choice(["0.0", "1.0", "64.0"])
    return draft.replace_any(draft.calls("sum"), lambda _: value)


@operator("value")
def first_half_of_sum(draft: Draft) -> bool:
    """A sum is twice that of every other element."""
    call = draft.choose([c for c in draft.calls("sum") if len(c.args) == 1 and isinstance(c.args[0], ast.Name)])
    if call is None:
        return False
    name = ast.unparse(call.args[0])
    return draft.replace(call, lambda _: f"2 * tl.sum(tl.where(tl.arange(0, {name}.shape[0]) % 2 == 0, {name}, 0.0))")


@operator("value")
def cheaper_function(draft: Draft) -> bool:
    """An approximation of a slow function."""
    known = {
        "tl.exp": "(1 + {0} + {0} * {0} / 2 + {0} * {0} * {0} / 6)",
        "tl.math.erf": "(2 * tl.sigmoid(2.4 * {0}) - 1)",
        "tl.erf": "(2 * tl.sigmoid(2.4 * {0}) - 1)",
        "tl.sigmoid": "(0.5 + 0.25 * {0})",
        "tl.rsqrt": "(1.5 - 0.5 * {0})",
    }
    found = [c for c in draft.in_kernels(ast.Call) if ast.unparse(c.func) in known]
    call = draft.choose(found)
    return bool(call) and draft.replace(
        call, lambda _: known[ast.unparse(call.func)].format(f"({ast.unparse(call.args[0])})")
    )


@operator("value")
def other_axis(draft: Draft) -> bool:
    """A size of the input is taken along another axis."""
    found = [
        n
        for n in ast.walk(draft.model())
        if re.fullmatch(r"\w+\.(shape\[[01]\]|(size|stride)\([01]\))", ast.unparse(n))
    ]
    return draft.replace_any(found, lambda text: text.translate({ord("0"): "1", ord("1"): "0"}))
