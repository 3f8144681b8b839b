"""From a composition to the source of a reference module, in one of many styles.

`describe` makes every random choice and returns it as JSON values; `write` turns them into text. The description is
kept in `Task.info`, so that graded solutions (`coldstart.solutions`) can be built from the same choices.
"""

from __future__ import annotations

import ast
import random
import re
from typing import Any

from drkernel.tasks.generators.operators import OPERATORS, Operator
from drkernel.tasks.generators.operators.families import FAMILIES
from drkernel.tasks.generators.operators.layouts import LAYOUTS, Layout
from drkernel.tasks.generators.operators.operator import PARAMETER_NAMES

_ARGUMENTS = {
    "k": ("k", "in_dim", "in_features"),
    "g": ("g", "groups", "num_groups"),
    "v": ("v", "vocab", "num_embeddings"),
    "n": ("n", "dim", "features"),
}
"""What a constructor may call its arguments, by placeholder; a task takes one column of names."""
_FIRST_NAMES, _SECOND_NAMES, _FRESH_NAMES = ("x", "x", "inp"), ("y", "other"), ("h", "out", "z")


def describe(family: str, composition: tuple[str, ...], layout_name: str, rng: random.Random) -> dict[str, Any]:
    """Draws everything about a task that its composition leaves open.

    Returns:
        The description, as JSON values:
        composition, family, layout: what was asked for;
        literals: {operator: {placeholder: text}};
        weights: {operator: {placeholder: attribute of the module}};
        modules: [attribute, constructor] pairs of `__init__`;
        args: {argument of the constructor: its value as a template over sizes};
        shape, small: {module constant: size}, as published and for the simulated device;
        dtype: of inputs and weights, where it is not float32 (the generator adds it);
        style: `spelling` of each operator, `flow` of the body (nested calls, one variable, a fresh one), `names`.
    """
    layout = LAYOUTS[layout_name]
    names = rng.choice(layout.names)
    full = rng.choice(layout.full)
    small = [rng.randint(*bounds) for bounds in layout.small]
    operators = [OPERATORS[name] for name in composition]
    index = rng.randrange(3)
    flow = rng.choice(("nested", "reassign", "fresh"))
    info: dict[str, Any] = {
        "composition": list(composition),
        "family": family,
        "layout": layout_name,
        "literals": {
            op.name: {key: rng.choice(values) for key, values in op.literals.items()} for op in operators if op.literals
        },
        "weights": {},
        "modules": [],
        "args": {},
        "shape": dict(zip(names, full, strict=True)),
        "small": dict(zip(names, small, strict=True)),
        "style": {
            "flow": flow,
            "spelling": {op.name: _spelling(op, flow, rng) for op in operators},
            "names": [rng.choice(_FIRST_NAMES), rng.choice(_SECOND_NAMES), rng.choice(_FRESH_NAMES)],
        },
    }
    arguments = {key: choices[index] for key, choices in _ARGUMENTS.items()}
    for op in operators:
        if op.parameters:
            _add_weights(info, op, arguments, rng)
    used = " ".join(constructor for _, constructor in info["modules"])
    info["args"] = {name: layout.args[key] for key, name in arguments.items() if re.search(rf"\b{name}\b", used)}
    return info


def _spelling(op: Operator, flow: str, rng: random.Random) -> str:
    """One of the operator's spellings. `manual` repeats its operand, which is no variable in nested calls."""
    kinds = ["functional", "method", "layer"] + ["manual"] * (flow != "nested")
    return rng.choice([kind for kind in kinds if getattr(op, kind)])


def _add_weights(info: dict[str, Any], op: Operator, arguments: dict[str, str], rng: random.Random) -> None:
    """Draws names for the operator's weights, and adds the constructors that make them."""
    values = {**arguments, **info["literals"].get(op.name, {})}
    if info["style"]["spelling"][op.name] == "layer":
        attribute = rng.choice(op.attributes)
        info["modules"].append([attribute, op.layer.format(**values)])
        own = {"weight": "weight", "offset": "bias"}
        info["weights"][op.name] = {key: f"{attribute}.{own[key]}" for key in op.parameters}
        return
    info["weights"][op.name] = {}
    for key, constructor in op.parameters.items():
        attribute = rng.choice(PARAMETER_NAMES[key])
        info["modules"].append([attribute, constructor.format(**values)])
        info["weights"][op.name][key] = attribute


def spell(info: dict[str, Any], name: str, x: str, y: str, spelling: str) -> str:
    """The torch expression of one operator applied to the expression `x`.

    Weighted layers are called by their attribute; other layers have none here and take their functional spelling.
    """
    op = OPERATORS[name]
    template = getattr(op, spelling)
    weights = info["weights"].get(name, {})
    if spelling == "layer":
        attribute = next(iter(weights.values()), "").split(".")[0]
        template = f"self.{attribute}({{x}})" if weights else op.functional
    bare = _binds_tightly(x) or re.search(r"\w\(\{x\}[,)]", template)
    return template.format(x=x if bare else f"({x})", y=y, **info["literals"].get(name, {}), **weights)


def _binds_tightly(expression: str) -> bool:
    """Whether the text needs no parentheses where it becomes an operand."""
    return isinstance(ast.parse(expression, mode="eval").body, (ast.Name, ast.Call, ast.Attribute, ast.Subscript))


def write(info: dict[str, Any]) -> str:
    """The source of the task: imports, size constants, `Model`, `get_inputs`, `get_init_inputs`."""
    layout = LAYOUTS[info["layout"]]
    sizes = dict(zip(layout.roles, info["shape"], strict=True))
    acts: list[tuple[str, str]] = []
    body = _body(info, acts)
    init = [f"self.{attribute} = {constructor}" for attribute, constructor in [*info["modules"], *acts]]
    init += dtype_statement(info)
    inputs = ", ".join(_inputs(info, layout, sizes))
    arguments = ", ".join(template.format(**sizes) for template in info["args"].values())
    lines = ["import torch", "import torch.nn as nn"]
    if "F." in "".join(body):
        lines.append("import torch.nn.functional as F")
    lines += ["", *(f"{name} = {value}" for name, value in info["shape"].items()), "", "", "class Model(nn.Module):"]
    if init:
        lines += [f"    def __init__({', '.join(['self', *info['args']])}):", "        super().__init__()"]
        lines += [*(f"        {line}" for line in init), ""]
    lines += [f"    def forward({', '.join(['self', *_input_names(info)])}):", *(f"        {line}" for line in body)]
    lines += ["", "", "def get_inputs():", f"    return [{inputs}]"]
    lines += ["", "", "def get_init_inputs():", f"    return [{arguments}]", ""]
    return "\n".join(lines)


def dtype_statement(info: dict[str, Any]) -> list[str]:
    """The last statement of a constructor with weights, where they are not float32."""
    return [f"self.to(torch.{info['dtype']})"] if "dtype" in info and info["modules"] else []


def has_second_input(composition: list[str]) -> bool:
    """Whether `forward` takes a second tensor."""
    return any(OPERATORS[name].second for name in composition)


def _input_names(info: dict[str, Any]) -> list[str]:
    return info["style"]["names"][: 2 if has_second_input(info["composition"]) else 1]


def _inputs(info: dict[str, Any], layout: Layout, sizes: dict[str, str]) -> list[str]:
    """The expressions that make the inputs; a second one has the shape at the place where it is used."""
    made = [layout.first.format(shape=layout.x.format(**sizes), **sizes)]
    reshaping = {*FAMILIES[info["family"]].cores, FAMILIES[info["family"]].lead}
    shape = layout.x
    for name in info["composition"]:
        if second := OPERATORS[name].second:
            template = "torch.randn({shape})" if second == "same" else second
            made.append(template.format(shape=shape.format(**sizes), **sizes))
        if name in reshaping:
            shape = layout.out or layout.x
    return [_in_dtype(info, expression) for expression in made]


def _in_dtype(info: dict[str, Any], expression: str) -> str:
    """The expression of an input, in the dtype of the task."""
    random = "dtype" in info and re.fullmatch(r"(torch\.randn?\(.*)\)", expression)
    return f"{random[1]}, dtype=torch.{info['dtype']})" if random else expression


def _body(info: dict[str, Any], acts: list[tuple[str, str]]) -> list[str]:
    """The statements of `forward`; layers without weights that it calls are added to `acts`."""
    style = info["style"]
    names = _input_names(info)
    x, y, fresh = names[0], names[-1], style["names"][2]
    variable, value = x, x
    lines = []
    for place, name in enumerate(info["composition"]):
        op, spelling = OPERATORS[name], style["spelling"][name]
        if op.prepare:
            lines.append(op.prepare.format(x=value))
        if spelling == "layer" and not op.parameters:
            attribute = "act" if op.is_stage and len(name) % 2 and not acts else name
            acts.append((attribute, op.layer.format(**info["literals"].get(name, {}))))
            value = f"self.{attribute}({', '.join([value] + [y] * bool(op.second))})"
        else:
            value = spell(info, name, value, y, spelling)
        if style["flow"] != "nested" and place < len(info["composition"]) - 1:
            variable = variable if style["flow"] == "reassign" else fresh
            lines.append(f"{variable} = {value}")
            value = variable
    return [*lines, f"return {value}"]
