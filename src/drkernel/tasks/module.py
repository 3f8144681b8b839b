"""A task's source as running code: the reference module, its constructor arguments and its inputs.

Task files are trusted input (submissions are not: they never come here).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from drkernel.tasks.seeding import Seeding
from drkernel.types import DrKernelError, Task

with torch.device("meta"):
    torch.empty(0)  # torch notes its factories the first time: while transformers loads a model, linspace is another

DEVICE: str | None = None
"""The default device of references and their inputs; None: that of torch."""


@dataclass(frozen=True)
class ArgumentEffects:
    """What a reference does with its arguments: a property of its code, found out at its first forward."""

    edits: bool
    """It changes them in place."""
    aliases: bool
    """Its output lies in their memory."""


class Reference:
    """Executes a task's source in a fresh namespace and builds what it describes.

    Args:
        task: its `source` must define `entry_point`, `get_inputs()` and `get_init_inputs()`.
        constants: other values for some of the module-level int constants, e.g. `task.small` or a hidden shape.

    Raises:
        DrKernelError: naming the task, the line and the error, where the source is broken or a name is missing.
    """

    constants: dict[str, int]
    """Every module-level int constant (`ROWS = 128`, `m, n = 64, 32`) with the value in force."""
    argument_effects: dict[bool, ArgumentEffects]
    """By training mode, where it has been found out; see cases.expected_outputs."""
    product_formats: dict[bool, Any]
    """Likewise, the 16-bit format in which it multiplies, or None; see reruns.Rerun."""
    choices: dict[bool, bool]
    """Likewise, whether it asks where numbers lie of which several may be equal; see ties."""
    of_weights: dict[Any, Any]
    """What has been found out of the weights of a model, by what it is and the seed; see cases.reference_model."""

    def __init__(self, task: Task, constants: Mapping[str, int] | None = None):
        self.task, self._seeding = task, Seeding()
        self.argument_effects, self.product_formats, self.choices, self.of_weights = {}, {}, {}, {}
        self._file = f"<{task.id}>"
        overrides = dict(constants or {})
        tree = self._bordered("loading", lambda: ast.parse(task.source, self._file))
        literals = int_constants(tree)
        if unknown := sorted(overrides.keys() - literals.keys()):
            raise DrKernelError(
                f"task {task.id}: no module-level int constant {unknown[0]!r}; it has {sorted(literals)}"
            )
        for name, value in overrides.items():
            for node in literals[name]:
                node.value = int(value)
        values = {name: nodes[-1].value for name, nodes in literals.items()}
        self.constants = {name: value for name, value in values.items() if isinstance(value, int)}
        module = ModuleType(f"task_{task.digest}")
        with self._seeding.loading():
            run = lambda: exec(compile(tree, self._file, "exec", dont_inherit=True), module.__dict__)
            self._bordered("loading", run)
        self._namespace = module.__dict__
        for name in (task.entry_point, "get_inputs", "get_init_inputs"):
            if not callable(self._namespace.get(name)):
                raise DrKernelError(f"task {task.id}: the source does not define {name!r}")

    def init_args(self) -> tuple[list, dict]:
        """Positional and keyword arguments of the constructor; `[[], {...}]` means keywords only (KernelBench)."""
        args = self._call("get_init_inputs", self._namespace["get_init_inputs"])
        if len(args) == 2 and isinstance(args[0], (list, tuple)) and not args[0] and isinstance(args[1], dict):
            return [], dict(args[1])
        return list(args), {}

    def model(self, seed: int) -> nn.Module:
        """The reference module, built right after `torch.manual_seed(seed)` and left on the default device."""
        args, kwargs = self.init_args()
        torch.manual_seed(seed)
        model = self._call(self.task.entry_point, self._namespace[self.task.entry_point], *args, **kwargs)
        if not isinstance(model, nn.Module):
            raise DrKernelError(f"task {self.task.id}: {self.task.entry_point} is not a torch.nn.Module")
        return model

    def inputs(self, seed: int) -> list:
        """What `get_inputs()` returns right after `torch.manual_seed(seed)`. They follow from this seed, whatever seeds
        it sets itself."""
        with self._seeding.following(seed):
            return list(self._call("get_inputs", self._namespace["get_inputs"]))

    def forward(self, model: nn.Module, inputs: list) -> Any:
        """The reference's outputs. It may compute gradients (`torch.enable_grad`): nothing of them stays but what it
        returns."""
        with torch.no_grad():
            outputs = self._call("forward", model, *tree_map_only(Tensor, lambda tensor: tensor.data, inputs))
        for weight in model.parameters():
            weight.grad = None
        return tree_map_only(Tensor, lambda tensor: tensor.detach() if tensor.requires_grad else tensor, outputs)

    def _call(self, what: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
        with torch.device(DEVICE) if DEVICE else contextlib.nullcontext():
            return self._bordered(what, functools.partial(function, *args, **kwargs))

    def _bordered(self, what: str, work: Callable[[], Any]) -> Any:
        """Does the work. Whatever the task file raises becomes a DrKernelError: the task, the place and the error."""
        try:
            return work()
        except Exception as error:
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file
            ]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
            place = f"line {line}, " if line else ""
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise DrKernelError(f"task {self.task.id}: {place}{what}: {text}") from error


def int_constants(tree: ast.Module) -> dict[str, list[ast.Constant]]:
    """The literal nodes of module-level int constants by name; signs are folded into the literal."""
    found: dict[str, list[ast.Constant]] = {}

    def bind(target: ast.expr, value: ast.expr) -> ast.expr:
        """Notes what an assignment binds; its value with signs folded."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            value.elts = [bind(t, v) for t, v in zip(target.elts, value.elts, strict=True)]
        elif isinstance(target, ast.Name):
            value = _folded(value)
            if isinstance(value, ast.Constant) and type(value.value) is int:
                found.setdefault(target.id, []).append(value)
        return value

    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                statement.value = bind(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            statement.value = bind(statement.target, statement.value)
    return found


def _folded(node: ast.expr) -> ast.expr:
    """`-3` as one literal, all else as it is."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int:
            return ast.copy_location(ast.Constant(-value), node)
    return node
