"""What a task computes, found by running it without data: PyTorch's functions as they are called, with their shapes.

    x = self.act(self.conv(x)) * 2   ->   t0 = self.m0(in0)  # F.conv2d(weight (16, 3, 3, 3), bias); (8, 16, 30, 30)
    return x.mean(dim=1)                  t1 = F.relu(t0)
                                          t2 = t1 * 2.0
                                          t3 = torch.mean(t2, dim=1)  # (8, 30, 30)
                                          return t3

The constructor and `forward` run on the meta device, in evaluation mode; loops and branches take their course, so only
calls are left, each in one spelling (calls.py). A module of PyTorch that makes one call is told as that module, with
the call beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from drkernel.policy.canonical.arguments import leaves
from drkernel.policy.canonical.calls import ALIASES, PUT, SHAPED, Call, Ref, called
from drkernel.policy.canonical.held import (
    ROLES,
    Named,
    absent,
    elements_of,
    holds_tensors,
    numbers_of,
    tensors,
    whole,
)
from drkernel.policy.canonical.literals import Literals
from drkernel.policy.canonical.meta import OnMeta, long_parts, made_from, of_few_steps
from drkernel.policy.canonical.nested import tensors_in, written_result
from drkernel.policy.canonical.numbers import with_more_digits
from drkernel.policy.canonical.other_sizes import Run, fitted, has_sizes, resized, with_attributes
from drkernel.policy.canonical.sizes import general, own, without_window
from drkernel.policy.canonical.unfolded import unfolded
from drkernel.policy.canonical.values import dtype_of, made_of, pattern_of, replaced, told_as
from drkernel.tasks.own_sizes import with_own_sizes

MOST_CALLS, MOST_LEFT = 1500, 4000
"""The most calls of a `forward` that are followed; a long loop over time has more. The parts of a network that make the
most are told whole then. The most calls that may be left, those of loops in `forward` itself among them."""


class Untold(Exception):
    """A task that cannot be run without data, or that makes too many calls."""


class _TooMany(Untold):
    """A task that makes too many calls."""


@dataclass(frozen=True)
class Trace:
    """A `forward` as lines, and the numbers that the module holds."""

    inputs: tuple[str, ...]
    """The shapes of the inputs."""
    lines: tuple[str, ...]
    general: tuple[str, ...]
    """The lines as they suit other sizes (sizes.py)."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of values, inputs and tensors of the module, by name."""
    dtypes: Mapping[str, str]
    """Of those of them that are not float32: float16, bfloat16, int, bool."""
    paths: Mapping[str, str]
    """Canonical names: `m0`, `m1`, ... of modules and tensors in the order in which calls need them, `n0`, `n1`, ... of
    whole numbers that the module holds, `r0`, `r1`, ... of others, `u0`, `u1`, ... of what no policy reads: modules
    without tensors, and whole numbers in tuples."""
    numbers: Mapping[str, int]
    """These whole numbers by path."""
    digits: Mapping[str, str]
    """Numbers of calls of which the lines have fewer digits, by what they have (numbers.py)."""
    absent: frozenset[str]
    """Tensors that modules might have and do not have, by name: the bias of a convolution without one."""
    has_parts: bool
    """Whether modules of the task's own classes are told whole."""


def trace(source: str, entry_point: str) -> Trace:
    """Runs a task's source, which is trusted as the project's own code is.

    Raises:
        Untold: it does not run without data, makes too many calls, or takes or returns something else than tensors.
    """
    source = with_own_sizes(source)
    state, dtype = torch.random.get_rng_state(), torch.get_default_dtype()
    try:
        with torch.no_grad(), torch.device("meta"), OnMeta():
            parts = frozenset[str]()
            try:
                told, recorder = _run(source, entry_point)
            except _TooMany:
                parts = long_parts(source, entry_point, MOST_CALLS)
                told, recorder = _run(source, entry_point, parts, MOST_LEFT)
            if not any(has_sizes(*both, recorder.held) for both in zip(recorder.calls, recorder.guesses, strict=True)):
                return told
            run = _as_run(recorder, told.paths)
            others = resized(source, run.calls)
            tried = (_at_other_sizes(text, entry_point, run, told.paths, parts) for text in others)
            return _at_all_sizes(told, recorder, run, [other for other in tried if other])
    except Untold:
        raise
    except (Exception, SystemExit) as error:  # whatever a task's own code raises
        raise Untold(f"{type(error).__name__}: {error}") from error
    finally:
        torch.random.set_rng_state(state)
        torch.set_default_dtype(dtype)


def _at_other_sizes(source: str, entry_point: str, base: Run, names: Mapping[str, str], parts: Set[str]) -> Run | None:
    """A run of the task with other numbers; None where it fails or makes other calls."""
    try:
        run = _as_run(_run(source, entry_point, parts, MOST_LEFT)[1], names)
    except (Exception, SystemExit):  # whatever a task's own code raises
        return None
    return run if [call.name for call in run.calls] == [call.name for call in base.calls] else None


def _as_run(recorder: _Recorder, names: Mapping[str, str]) -> Run:
    """names: of the numbers that the module holds, by path."""
    held = {**recorder.held, **recorder.elements}
    numbers = {names[path]: number for path, number in held.items() if path in names}
    return Run(recorder.calls, recorder.made, recorder.shapes, numbers)


def _at_all_sizes(told: Trace, recorder: _Recorder, base: Run, others: Sequence[Run]) -> Trace:
    """The lines with numbers that are right in other runs, too."""
    lines, suited = list(told.lines), list(told.general)
    for place, guess in enumerate(recorder.guesses):
        made = fitted(place, guess, base, others)
        if made.text != guess.text:
            suited[place] = f"{suited[place].partition(' = ')[0]} = {made.text}"
            if made.infix and "self.u" not in made.text:
                lines[place] = suited[place] + lines[place][len(told.general[place]) :]
        held = with_attributes(place, made, base, others)  # not told: no policy knows these names
        suited[place] = f"{suited[place].partition(' = ')[0]} = {held.text}" if held is not made else suited[place]
    return replace(told, lines=tuple(lines), general=tuple(suited))


def _run(
    source: str, entry_point: str, parts: Set[str] = frozenset(), most: int = MOST_CALLS
) -> tuple[Trace, _Recorder]:
    """parts: paths of modules that are told whole, beside those of PyTorch's. most: calls."""
    model, inputs = made_from(source, entry_point)
    recorder = _Recorder(most)
    for path, tensor in tensors(model):
        recorder.known.setdefault(id(tensor), Ref("", tuple(tensor.shape), dtype_of(tensor), path))
    for place, value in enumerate(inputs):
        for name, tensor in tensors_in(value, f"in{place}"):
            recorder.take(tensor, name)
    for path, module in model.named_modules():
        is_told = holds_tensors(module) or isinstance(module, nn.GroupNorm)  # whose groups the submission may ask for
        if type(module).__module__.startswith("torch.nn.modules") and path:
            recorder.keep_call(module, path, is_told)
    for path, module in whole(model, parts):
        recorder.keep_whole(module, path)
    recorder.held, recorder.elements = dict(numbers_of(model)), dict(elements_of(model))
    numbers = {path: value for path, value in recorder.held.items() if type(value) is int and value > 1}
    names = {path: f"n{place}" for place, path in enumerate(numbers)}
    recorder.numbers = Named(model, {path: (numbers[path], name) for path, name in names.items()})
    recorder.literals = Literals.of(source)
    with recorder:
        result = model(*inputs)
    lines = tuple(recorder.lines(result))
    paths = recorder.paths | names
    paths |= {path: f"r{place}" for place, (path, value) in enumerate(recorder.held.items()) if type(value) is float}
    paths |= {path: f"u{len(recorder.untold) + k}" for k, path in enumerate(recorder.elements)} | recorder.untold
    missing = frozenset(f"self.{paths[p]}.{role}" for p, role in absent(model) if p in paths)
    shown = tuple(map(told_as, inputs))
    digits = with_more_digits(value for call in recorder.calls for value in leaves([call.tensors, call.words]))
    suited, shapes, dtypes = tuple(recorder.general), recorder.shapes, recorder.dtypes
    return Trace(shown, lines, suited, shapes, dtypes, paths, numbers, digits, missing, bool(parts)), recorder


@dataclass
class _Line:
    """A call that was made."""

    call: Call
    made: list[Ref]
    numbers: Mapping[int, str] = field(default_factory=dict)
    """Names of whole numbers there."""


class _Recorder(TorchFunctionMode):
    """Keeps the calls that are made under it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.known: dict[int, Ref] = {}
        self.paths: dict[str, str] = {}
        self.general: list[str] = []
        self.calls: list[Call] = []
        """By line, and what is guessed of them at other sizes."""
        self.guesses: list[Call] = []
        self.made: list[int] = []
        """How many values have names before each line."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.held: dict[str, int | float] = {}
        """Numbers that the module holds, by path."""
        self.elements: dict[str, int] = {}
        """Whole numbers in tuples that it holds, by path."""
        self.untold: dict[str, str] = {}
        """Names of modules without tensors whose calls are lines, by path."""
        self.numbers = Named()
        """Names of whole numbers that the module holds."""
        self.literals = Literals()
        self._inputs: list[Ref] = []
        self._calls: list[_Line] = []
        self._quiet = False
        self._alive: list[Tensor] = []
        """So that no other tensor gets the same id."""

    def name(self, tensor: Tensor, ref: Ref) -> None:
        self._alive.append(tensor)
        self.known[id(tensor)] = ref

    def take(self, tensor: Tensor, name: str) -> None:
        """An input."""
        self._inputs.append(Ref(name, tuple(tensor.shape), dtype_of(tensor)))
        self.name(tensor, self._inputs[-1])

    def keep_whole(self, module: nn.Module, path: str) -> None:
        """Tells a module's call as one line, whatever it calls in turn."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._quiet = True
            try:
                result = inner(*args, **kwargs)
                is_own = not type(module).__module__.startswith("torch.nn.modules")
                head = "nn.Module()" if is_own else f"nn.{type(module).__name__}({module.extra_repr()})"
                told = {name: value for name, value in kwargs.items() if value is not usual[name].default}
                given, words = replaced((args, told), self._ref)
                self._add(Call(path, given, words, module=head, makes=pattern_of(result)), *made_of(result))
            finally:
                self._quiet = False
            return result

        inner, module.forward = module.forward, forward
        inner = of_few_steps(module, inner) if isinstance(module, nn.RNNBase) else inner
        usual = inspect.signature(type(module).forward).parameters

    def keep_call(self, module: nn.Module, path: str, is_told: bool) -> None:
        """Tells the call of a module that makes one call of a function as the module's. Where that is not told, the
        line for all sizes calls it, since it has its own numbers at each."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            start = len(self._calls)
            result = inner(*args, **kwargs)
            made = self._calls[start:]
            if len(made) == 1 and isinstance(result, Tensor) and made[0].made[0] is self.known.get(id(result)):
                call = made[0].call
                given = [ref for ref in call.refs if not ref.path]
                owners = {ref.path.rpartition(".")[0] for ref in call.refs if ref.path}
                if is_told and owners <= {path} and len(given) == len(args):
                    made[0].call = Call(path, given, module=call.description)
                elif not is_told and call.has_numbers and [id(ref) for ref in call.refs] == list(map(self._id, args)):
                    call.own = "" if getattr(module, "inplace", False) or kwargs else path
            return result

        inner, module.forward = module.forward, forward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._quiet:
            return func(*args, **kwargs)
        if parts := unfolded(func, args, kwargs):
            with self:
                whole = parts()
            if whole is not NotImplemented:
                return whole
        given = replaced((args, kwargs), self._ref)
        result = func(*args, **kwargs)
        if isinstance(result, Iterator):
            result = list(result)
        made, refs = made_of(result)
        if func is Tensor.__setitem__:
            self._calls.append(_Line(called(func, given[0], given[1], []), [given[0][0]]))
        elif made:
            call = called(func, given[0], given[1], refs)
            if call.name == ALIASES:
                self.name(made[0], call.tensors[0])
            else:
                self._add(call, made, refs)
        return iter(result) if isinstance(result, list) and func is Tensor.__iter__ else result

    def _add(self, call: Call, made: Sequence[Tensor], refs: list[Ref]) -> None:
        if len(self._calls) >= self._most:
            raise _TooMany(f"more than {self._most} calls")
        for value, ref in zip(made, refs, strict=True):
            self.name(value, ref)
        self._calls.append(_Line(call, refs, self.numbers.now))

    def _ref(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self.known:
            raise Untold("a tensor that no call has made")
        return self.known[id(value)]

    def _id(self, value: Any) -> int:
        return id(self.known.get(id(value)))

    def lines(self, result: Any) -> Iterator[str]:
        """The calls that the result needs, in order, with names for what they make."""
        returned = [self._ref(value) for value in made_of(result)[0]]
        if not returned:
            raise Untold("forward returns no tensor")
        needed, kept = {id(ref) for ref in returned}, []
        for line in reversed(self._calls):
            if any(id(ref) in needed for ref in line.made):
                needed |= {id(ref) for ref in line.call.refs}
                kept.append(line)
        number, told = 0, set[str]()
        makers = {id(ref): line.call for line in kept for ref in line.made}
        values: list[Ref] = []
        for line in reversed(kept):
            self._name_held(line.call)
            if line.call.name == PUT:
                self._keep(line.call, line.call, number, line.call.text)
                yield self.general[-1]
                continue
            line, before = _without_places(line, needed), number
            windowless = without_window(line.call, self.numbers.everywhere, self.literals)
            line = replace(line, call=replace(windowless, own=line.call.own))
            for ref in line.made:
                used = id(ref) in needed
                ref.name, number = (f"t{number}", number + 1) if used else ("_", number)
            self.shapes |= {r.name: r.shape for r in (*line.call.refs, *line.made)}
            self.dtypes |= {r.name: r.dtype for r in (*line.call.refs, *line.made) if r.dtype != "float32"}
            names, pattern = [ref.name for ref in line.made], line.call.makes
            is_first = pattern not in ("", "{}") and not any(id(ref) in needed for ref in line.made[1:])
            makes = f"{names[0]}, *_" if is_first else pattern.format(*names) or ", ".join(names)
            guess = general(line.call, self._inputs, line.numbers, makers, self.literals, values)
            suited = own(line.call) or guess
            values = [*(ref for ref in line.made if ref.name != "_"), *values]
            self._keep(line.call, suited, before, f"{makes} = {suited.text}")
            yield f"{makes} = {(suited if line.call.infix else line.call).text}{_beside(line, told)}"
        self.general.append(f"return {written_result(result, lambda tensor: self._ref(tensor).name)}")
        yield f"return {', '.join(ref.name for ref in returned)}"

    def _keep(self, call: Call, guess: Call, number: int, text: str) -> None:
        self.calls.append(call)
        self.guesses.append(guess)
        self.made.append(number)
        self.general.append(text)

    def _name_held(self, call: Call) -> None:
        """Gives modules and tensors of the module their names."""
        named = lambda path: self.paths.setdefault(path, f"m{len(self.paths)}")
        if call.module:
            call.name = f"self.{named(call.name)}"
        if call.own:
            call.own = f"self.{self.untold.setdefault(call.own, f'u{len(self.untold)}')}"
        for ref in call.refs:
            if ref.path and not ref.name:
                owner, _, role = ref.path.rpartition(".")
                has_role = owner and ROLES.fullmatch(role)  # others have names that somebody invented
                ref.name = f"self.{named(owner)}.{role}" if has_role else f"self.{named(ref.path)}"


def _without_places(line: _Line, needed: set[int]) -> _Line:
    """`amax` where the places that `max` finds are of no use; `min` alike."""
    call = line.call
    if call.name in ("max", "min") and len(line.made) == 2 and id(line.made[1]) not in needed:
        return replace(line, call=Call(f"a{call.name}", call.tensors, call.words), made=line.made[:1])
    return line


def _beside(line: _Line, told: set[str]) -> str:
    """What stands behind a call: shapes of parameters that were not told before, of all that it reads where they differ
    from each other or from what is made, and of what is made where that is not the shape of its first argument."""
    words = [line.call.module] if line.call.module else []
    refs, made = list(line.call.refs), line.made[0]
    first = refs[0] if refs else None
    shaped = line.call.name in SHAPED
    differ = not (line.call.module or shaped) and len({ref.shape for ref in (*refs, made)}) > 1
    for ref in {ref.name: ref for ref in refs}.values():
        is_new = ref.path and ref.name not in told and (len(ref.shape) > 1 or ref.name.count(".") == 1)
        if is_new or differ:
            told.add(ref.name)
            words.append(f"{ref.name.removeprefix('self.')}: {ref.shape}")
    if not shaped and (first is None or (first.shape, first.dtype) != (made.shape, made.dtype)):
        words.append(" ".join([made.dtype] * (made.dtype != (first.dtype if first else "")) + [str(made.shape)]))
    return f"  # {'; '.join(words)}" if words else ""
