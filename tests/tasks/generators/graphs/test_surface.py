"""What the generator `graphs` writes has to be read: names, numbers and ways of passing them vary."""

import ast
import builtins
import functools
import keyword
import random
from collections import Counter

import pytest
import torch

from drkernel.coldstart.answers.grades import answers
from drkernel.tasks.generators import generate
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.ops.shapes import number, small_number
from drkernel.tasks.generators.graphs.source import lexicon

FORBIDDEN = {*keyword.kwlist, *dir(builtins), *dir(torch.nn.Module()), "torch", "nn", "F", "tl", "triton", "math", "np"}
COMMON = {"input", "inputs", "x"}


pytestmark = pytest.mark.xdist_group("surface")  # one worker draws the tasks


@pytest.fixture(scope="module")
def tasks():
    return generate("train", 1000, 77, generator="graphs")


parsed = functools.cache(ast.parse)


def stored(tree: ast.AST) -> list[str]:
    """Names that a file binds, arguments among them."""
    found = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return found + [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]


def attributes(tree: ast.AST) -> list[str]:
    """Attributes of `self` that a file sets."""
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]


def constructor(task) -> ast.FunctionDef | None:
    model = next(n for n in parsed(task.source).body if isinstance(n, ast.ClassDef) and n.name == "Model")
    return next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)


def test_the_lexicon_is_large_and_its_names_are_free():
    rng = random.Random(0)
    assert len(lexicon.WORDS) > 300
    for case in ("lower", "upper", "class"):
        found = [lexicon.invented(rng, case) for _ in range(3000)]
        assert all(name.isidentifier() and name not in FORBIDDEN for name in found)
        assert len(set(found)) > 2000
        assert case != "upper" or all(name.isupper() for name in found)


@pytest.mark.slow
def test_no_name_collides(tasks):
    for task in tasks:
        tree = parsed(task.source)
        assert not (set(stored(tree)) - COMMON - {"self"}) & FORBIDDEN, task.source
        assert not set(attributes(tree)) & FORBIDDEN, task.source
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            arguments = [argument.arg for argument in function.args.args]
            assert len(arguments) == len(set(arguments))
        module = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        single = [target.id for target in module if isinstance(target, ast.Name)]
        assert len(single) == len(set(single)), task.source


@pytest.mark.slow
def test_identifiers_are_many(tasks):
    found = Counter(name for task in tasks for name in {*stored(parsed(task.source)), *attributes(parsed(task.source))})
    once = sum(count == 1 for count in found.values())
    assert len(found) > 2500 and once > 1250, (len(found), once)
    invented = Counter(task.source for task in tasks if not {"x", "batch_size"} & set(stored(parsed(task.source))))
    assert len(invented) > 0.3 * len(tasks)


def test_arguments_of_constructors_need_not_be_called_as_constants(tasks):
    differ = 0
    for task in tasks[:400]:
        made = constructor(task)
        differ += bool(made and {a.arg for a in made.args.args} - set(stored(ast.Module(parsed(task.source).body, []))))
        names = {
            node.id
            for node in parsed(task.source).body
            if isinstance(node, ast.Assign)
            for node in node.targets
            if isinstance(node, ast.Name)
        }
        differ += bool(made and {a.arg for a in made.args.args} - {"self"} - names)
    assert differ > 100


def ways(task) -> dict[str, set[str]]:
    """How each attribute of a task's nodes arrives: held by the module (`held`), by an argument or as a literal."""
    found: dict[str, set[str]] = {}
    buffers = task.info["buffers"]
    for key, attribute in buffers.items():
        name = key.partition(".")[2]
        lines = [line for line in task.info["init"]["lines"] if line.startswith(f"self.{attribute} = ")]
        for line in lines:
            value = line.partition(" = ")[2]
            found.setdefault(name, set()).add(
                "argument" if value.isidentifier() and value not in ("True", "False") else "own"
            )
    return found


def test_every_attribute_of_forward_comes_in_each_way(tasks):
    found: dict[str, Counter] = {}
    for task in tasks:
        for name, kinds in ways(task).items():
            found.setdefault(name, Counter()).update(kinds)
    for name in ("dim", "dims", "eps", "value", "kernel_size"):
        assert found[name]["argument"] and found[name]["own"], (name, found.get(name))
    for name in ("negative_slope", "alpha", "min_val", "max_val", "p", "stride", "padding", "keepdim", "output_size"):
        assert found.get(name), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "keyword_name"),
    [("Conv2d", "padding"), ("Conv2d", "stride"), ("MaxPool2d", "stride"), ("BatchNorm2d", "eps"), ("Linear", "bias")],
)
def test_attributes_of_layers_are_literals_or_arguments(tasks, call, keyword_name):
    found: Counter = Counter()
    for task in tasks:
        made = constructor(task)
        defaults = (
            {} if made is None else {a.arg for a in made.args.args[len(made.args.args) - len(made.args.defaults) :]}
        )
        for node in ast.walk(parsed(task.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == call:
                for given in node.keywords:
                    if given.arg == keyword_name and isinstance(given.value, ast.Name):
                        found["default" if given.value.id in defaults else "argument"] += 1
                    elif given.arg == keyword_name:
                        found["literal"] += 1
    assert found["argument"] and found["literal"] and found["default"], found


def test_constants_have_defaults_that_do_not_count(tasks):
    given = [
        task for task in tasks if "[[], {" not in task.source and (made := constructor(task)) and made.args.defaults
    ]
    assert len(given) > 0.1 * len(tasks)


def test_kernels_strides_and_dims_are_wide(tasks):
    found: dict[str, set] = {}
    for task in tasks:
        for op, _, values in task.info["graph"]["nodes"]:
            for name, value in values.items():
                found.setdefault(name, set()).add(str(value))
                if OPS[op].kind == "norm" and name == "dim":
                    found.setdefault("norm", set()).add(value)
    assert {"1", "2", "3", "4", "5", "7"} <= found["kernel_size"]
    assert {"1", "2", "3", "4"} <= found["stride"] and any(value.startswith("[") for value in found["stride"])
    assert {"0", "1", "2", "3"} <= found["padding"] and {"1", "2", "3"} <= found["dilation"]
    assert len(found["eps"]) > 50 and len(found["value"]) > 100 and {0, 1, 2, 3} <= found["norm"]


def test_files_are_arranged_in_several_orders(tasks):
    class_first = sum(task.source.index("class ") < task.source.index(" = ") for task in tasks)
    init_first = sum(task.source.index("def get_init_inputs") < task.source.index("def get_inputs") for task in tasks)
    text = "".join(task.source for task in tasks)
    assert class_first > 50 and init_first > 50
    for part in ("nn.functional.", "*input_shape", "torch.mm(", "torch.einsum(", "affine=False", ".shape[-"):
        assert part in text, part


def test_numbers_stay_between_the_usual_ones():
    rng = random.Random(0)
    found = [number(rng, (0.5, 2.0, 0.1)) for _ in range(500)]
    assert all(0.1 <= value <= 2.0 for value in found) and len(set(found)) > 120
    assert all(0 < small_number(rng, (1e-5,)) <= 1e-2 for _ in range(200))
    assert {number(rng, (1, 2)) for _ in range(50)} == {1, 2}


def test_answers_are_written_for_invented_names(tasks):
    for task in tasks[:150]:
        found = answers(task, 0)
        assert found, task.id
        for answer in found:
            compile(answer.source, task.id, "exec")
            assert f"def forward({', '.join(['self', *task.info['arguments']])})" in answer.source
