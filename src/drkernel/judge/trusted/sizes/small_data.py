"""A reference run on tensors of which only the small ones have data: offsets, lengths and counts that it reads back.

Everything else is as in `without_data`: large tensors have shapes alone, and take neither memory nor arithmetic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from drkernel.judge.boundary.aten import without_compiler
from drkernel.judge.trusted.sizes.without_data import DRY_RUNS, without_data

FEW, MANY = 2**20, 2**25
"""Elements of the largest tensor that has data; the second where the first do not do."""
_ALL, _PRODUCTS = 16, 16
"""All operators together read and write so many times these elements, and so many operations of products count as one.
What is beyond has no data."""
_SELECTING = frozenset({torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_})
"""Operators whose second argument is a list of places or masks."""


def few() -> contextlib.AbstractContextManager[None]:
    """As `with_small_data`, at little cost."""
    return with_small_data(FEW)


def many() -> contextlib.AbstractContextManager[None]:
    """As `with_small_data`: some GiB, and some seconds."""
    return with_small_data(MANY)


@contextlib.contextmanager
def with_small_data(largest: int) -> Iterator[None]:
    """Whatever creates tensors in this block creates such ones. What reads back a value that is not known fails.

    Args:
        largest: elements that a tensor with data has at most.
    """
    with without_data(), _Known(largest):
        yield


@without_compiler
class _Known(TorchDispatchMode):
    """Computes, beside each tensor without data, the one with data, as long as that is small."""

    def __init__(self, largest: int):
        super().__init__()
        self._largest, self._left = largest, float(_ALL * largest)
        self._data = WeakIdKeyDictionary()
        self._lost: set[int] = set()
        """Memory of which a part was overwritten with numbers that are not known."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        try:
            made = func(*args, **kwargs)
        except Exception:  # it reads a value, or its shape depends on data
            if not self._is_known(args, kwargs):
                if (places := self._without_masks(func, args)) is args:
                    raise
                return func(*places, **kwargs)
            found = self._computed(func, args, kwargs)
            made = tree_map_only(Tensor, _like, found)
            self._note(made, found)
            return made
        if self._is_known(args, kwargs) and self._is_small(func, args, kwargs, made):
            self._note(made, self._computed(func, args, kwargs))
        else:
            self._forget(func, args, kwargs)
        return made

    def _of(self, tensor: Tensor) -> Tensor | None:
        """The tensor with data, if it is known."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        found = self._data.get(tensor)
        return None if found is None or _memory(found) in self._lost else found

    def _is_known(self, *trees: Any) -> bool:
        return all(self._of(leaf) is not None for leaf in tree_leaves(trees) if isinstance(leaf, Tensor))

    def _is_small(self, func: Any, args: tuple, kwargs: dict, made: Any) -> bool:
        """Whether there is time for it; what there is becomes less."""
        sizes = [leaf.numel() for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, Tensor)]
        if func.is_view or max(sizes, default=0) > self._largest:
            return func.is_view
        count: Callable | None = flop_registry.get(func.overloadpacket)
        self._left -= sum(sizes) + (count(*args, **kwargs, out_val=made) / _PRODUCTS if count else 0)
        return self._left >= 0

    def _without_masks(self, func: Any, args: tuple) -> tuple:
        """The arguments, with places instead of masks that are known, where others tell what is selected."""
        if func.overloadpacket not in _SELECTING:
            return args
        places: list[Any] = []
        for index in args[1]:
            data = None if index is None or index.dtype != torch.bool else self._of(index)
            with unset_fake_temporarily():
                found = () if data is None else data.nonzero(as_tuple=True)
            places += [index] if data is None else map(self._placed, found)
        return args[0], places, *args[2:]

    def _placed(self, data: Tensor) -> Tensor:
        fake = _like(data)
        self._note(fake, data)
        return fake

    def _computed(self, func: Any, args: tuple, kwargs: dict) -> Any:
        args, kwargs = tree_map_only(Tensor, self._of, (args, kwargs))
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    def _note(self, made: Any, found: Any) -> None:
        for fake, data in zip(tree_leaves(made), tree_leaves(found), strict=True):
            if isinstance(fake, FakeTensor) and fake.shape == data.shape:
                self._data[fake] = data

    def _forget(self, func: Any, args: tuple, kwargs: dict) -> None:
        """What the operator writes to is no longer known, nor is any other view of it."""
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written = tree_leaves(args[index] if index < len(args) else kwargs.get(argument.name))
                known = (self._data.get(leaf) for leaf in written if isinstance(leaf, FakeTensor))
                self._lost |= {_memory(data) for data in known if data is not None}


def _like(data: Tensor) -> Tensor:
    """A tensor without data of this shape."""
    return torch.empty_strided(data.shape, data.stride(), dtype=data.dtype)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


RUNS = (*DRY_RUNS, few, many)
"""The ways to run a reference without large data, in the order in which they are tried."""
