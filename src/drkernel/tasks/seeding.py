"""Random numbers that follow from one seed, whatever seeds the code that draws them sets.

A task may write `torch.manual_seed(42)` in `get_inputs`, so that its author sees the same inputs in every run. A judge
that draws inputs for many calls needs other ones each time. So in `following(seed)` a seed that the code sets is not
taken as it is: it is mixed with the given one. Two settings of one seed still give the same numbers twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_HOLDERS = (np.random.BitGenerator, np.random.Generator, np.random.RandomState)
"""What numpy takes in place of a seed, and what has been seeded before."""


class Seeding:
    """What one piece of code is given in place of the generators of `random` and numpy.

    Generators that it makes while it is loaded start again from a mixed seed in each `following`.
    """

    def __init__(self) -> None:
        self._seed: int | None = None
        self._loading = False
        self._unseeded = 0
        """How many generators were asked for without a seed since the present one was set."""
        self._early: list[tuple[Any, str]] = []
        """The generators that were made while the code was loaded, each with how it was seeded."""
        self._replaced: list[tuple[Any, str, Any]] = [
            (random, "Random", self._random(random.Random)),
            (random, "seed", self._seeds(random.seed)),
            (np.random, "RandomState", self._numpy(np.random.RandomState)),
            (np.random, "seed", self._seeds(np.random.seed)),
            (np.random, "default_rng", self._default_rng),
            *((np.random, name, self._numpy(getattr(np.random, name))) for name in _BIT_GENERATORS),
        ]

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """A block in which the code is loaded."""
        self._loading = True
        try:
            with self._installed():
                yield
        finally:
            self._loading = False

    @contextlib.contextmanager
    def _installed(self) -> Iterator[None]:
        """A block in which the generators of `random` and numpy are these."""
        before = [(holder, name, getattr(holder, name)) for holder, name, _ in self._replaced]
        for holder, name, value in self._replaced:
            setattr(holder, name, value)
        try:
            yield
        finally:
            for holder, name, value in before:
                setattr(holder, name, value)

    @contextlib.contextmanager
    def following(self, seed: int) -> Iterator[None]:
        """A block whose random numbers are a function of this seed. torch's generator is seeded with it as it is."""
        states, outer = (random.getstate(), np.random.get_state()), (self._seed, self._unseeded)
        self._seed, self._unseeded = seed, 0
        torch.manual_seed(seed)
        try:
            for generator, made_by in self._early:
                _start_again(generator, self._mixed(made_by))
            with self._installed(), _Mixing(seed):
                random.seed(seed)
                np.random.seed(seed)
                yield
        finally:
            self._seed, self._unseeded = outer
            random.setstate(states[0])
            np.random.set_state(states[1])

    def _mixed(self, made_by: str) -> int:
        """The seed of a generator; of 32 bits, since some of numpy's take no more."""
        return _hashed(self._seed, made_by.encode()) % 2**32

    def _given(self, args: tuple, kwargs: dict) -> str:
        """How a generator is seeded. None and nothing ask for another seed each time."""
        given = repr((args, kwargs))
        if all(value is None for value in (*args, *kwargs.values())):
            self._unseeded += 1
            given += str(self._unseeded)
        return given

    def _seeds(self, function: Any) -> Any:
        """In place of a function that seeds a global generator."""

        def seed(*args: Any, **kwargs: Any) -> None:
            if self._seed is None:
                function(*args, **kwargs)
            else:
                function(self._mixed(self._given(args, kwargs)))

        return seed

    def _numpy(self, base: type) -> type:
        """In place of a class of numpy that is seeded when it is made."""
        seeding = self

        class Mixed(base):
            def __init__(self, *args: Any, **kwargs: Any):
                if args and isinstance(args[0], _HOLDERS):
                    super().__init__(*args, **kwargs)
                    return
                given = seeding._given(args, kwargs)
                if seeding._seed is not None:
                    args, kwargs = (seeding._mixed(given),), {}
                super().__init__(*args, **kwargs)
                if seeding._loading:
                    seeding._early.append((self, given))

            def seed(self, *args: Any, **kwargs: Any) -> None:
                seeding._seeds(super().seed)(*args, **kwargs)

        Mixed.__name__ = base.__name__  # numpy compares it when a state is set
        return Mixed

    def _random(self, base: type[random.Random]) -> type:
        seeding = self

        class Mixed(base):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any):
                super().__init__(*args)
                if seeding._loading:
                    seeding._early.append((self, seeding._given(args, {})))

            def seed(self, *args: Any, **kwargs: Any) -> None:
                seeding._seeds(super().seed)(*args, **kwargs)

        return Mixed

    def _default_rng(self, seed: Any = None) -> np.random.Generator:
        if isinstance(seed, np.random.Generator):
            return seed
        holder: Any = seed if isinstance(seed, _HOLDERS) else np.random.PCG64(seed)
        return np.random.Generator(getattr(holder, "_bit_generator", holder))


class _Mixing(TorchDispatchMode):
    """Mixes a seed into the state of each generator of torch from which numbers are drawn, unless the state has come
    from that seed: so it does not matter how the generator was seeded, when, and by whom."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler at the first operator

    def __init__(self, seed: int):
        super().__init__()
        self._seed, self._default = seed, _default_generators()
        with _disable_current_modes():
            self._known = {_state(generator) for generator in self._default}
        """States that follow from the seed."""
        self._before: list[tuple[Generator, Tensor]] = []
        """The generators that the code had, as they were."""

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        with _disable_current_modes():
            for generator, state in self._before:
                generator.set_state(state)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        own = [value for value in (*args, *kwargs.values()) if isinstance(value, Generator)]
        with _disable_current_modes():
            for generator in own or self._default:
                self._mix(generator)
        output = func(*args, **kwargs)
        with _disable_current_modes():
            self._known.update(_state(generator) for generator in own or self._default)
        return output

    def _mix(self, generator: Generator) -> None:
        known = (*self._default, *(other for other, _ in self._before))
        if not any(generator is other for other in known):
            self._before.append((generator, generator.get_state()))
        if (state := _state(generator)) not in self._known:
            generator.manual_seed(_hashed(self._seed, state))


def _default_generators() -> list[Generator]:
    found = [torch.default_generator]
    if torch.cuda.is_initialized() and torch.cuda.default_generators:  # there are none where CPU tensors pass for CUDA
        found.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return found


def _state(generator: Generator) -> bytes:
    return hashlib.blake2b(generator.get_state().numpy().tobytes()).digest()


def _hashed(seed: int | None, what: bytes) -> int:
    """A number of 63 bits."""
    return int.from_bytes(hashlib.blake2b(f"{seed} ".encode() + what, digest_size=8).digest(), "big") >> 1


def _start_again(generator: Any, seed: int) -> None:
    base: Any = type(generator).__base__
    if isinstance(generator, np.random.BitGenerator):
        generator.state = base(seed).state
    else:
        base.seed(generator, seed)


@contextlib.contextmanager
def global_state_kept() -> Iterator[None]:
    """What a task's source changes in the whole process is put back: generators and the default dtype."""
    python, array, dtype = random.getstate(), np.random.get_state(), torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.set_default_dtype(dtype)
