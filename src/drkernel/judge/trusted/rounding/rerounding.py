"""The reference of a 16-bit task once more, in fp64, with each operator's result rounded to 16 bits at random.

PyTorch rounds the result of every operator. A kernel that fuses some of them with a product of PyTorch's has part of
these errors. At one element the errors of eager may cancel, and those that are left to the kernel do not: 3 * x + 2 is
nearly nothing where x was rounded beside 2 / 3. So an element that stands alone may have what other draws of the same
roundings make of it. What eager does not round to 16 bits, because it is fp32 there or no operator of its own, is not
rounded here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.rounding.rounding import ROUNDED_ONCE, rounds_nothing

Site = tuple[str, int]
"""An operator by its name, and how often it was called before."""


class _Counted(TorchDispatchMode):
    """Tells the calls of operators apart."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        outputs, name = func(*args, **kwargs or {}), func.overloadpacket.__name__
        if not rounds_nothing(func):
            several = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            self._called((name, self._calls[name]), [value for value in several if isinstance(value, Tensor)])
            self._calls[name] += 1
        return outputs

    def _called(self, site: Site, outputs: list[Tensor]) -> None:
        raise NotImplementedError


class Roundings(_Counted):
    """Notes, while eager runs, which operators round to 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.formats: dict[Site, torch.dtype] = {}

    def _called(self, site: Site, outputs: list[Tensor]) -> None:
        found = {value.dtype for value in outputs if value.is_floating_point() and value.element_size() < 4}
        if len(found) == 1:
            self.formats[site] = found.pop()


class Rerounded(_Counted):
    """Rounds the results of these operators again, while the reference runs in fp64.

    Args:
        formats: see `Roundings`.
        seed: of the roundings; no global generator is touched.
    """

    def __init__(self, formats: dict[Site, torch.dtype], seed: int):
        super().__init__()
        self._formats, self._seed = formats, seed
        self._places: torch.Generator | None = None

    def _called(self, site: Site, outputs: list[Tensor]) -> None:
        if (narrow := self._formats.get(site)) is None:
            return
        for value in outputs:
            if value.is_floating_point():
                self._places = self._places or torch.Generator(value.device).manual_seed(self._seed)
                error = torch.empty_like(value).uniform_(-(3**0.5), 3**0.5, generator=self._places)
                error *= value * (ROUNDED_ONCE * torch.finfo(narrow).eps)
                exactly = value.to(narrow).to(value.dtype) == value
                value += torch.where(exactly, 0.0, error).nan_to_num_(0.0, 0.0, 0.0)
