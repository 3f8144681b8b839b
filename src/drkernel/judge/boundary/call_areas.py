"""The arguments and results of calls in two areas of shared memory. Whoever runs a forward uses this: a runner for the
submission's, an examiner on a GPU for the reference's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.boundary import shared_tensors
from drkernel.judge.boundary.shared_tensors import Area, NotSerializable, Slot


class CallAreas:
    """Two areas: arguments are read from `inputs`, results are written to `outputs`."""

    def __init__(self, inputs: Area, outputs: Area):
        self.inputs, self.outputs = inputs, outputs
        self._views: dict[Slot, tuple[Tensor, int]] = {}
        """The arguments of the last call by where they lie, each with the address of its memory."""

    def values(self, tree: Any, slots: list) -> Any:
        """The value with this JSON form. A tensor at the same place with the same form is the same object as last time,
        unless the call before has changed it: one that requires a gradient would add this call's to that of the last.

        Raises:
            NotSerializable: it is not well formed.
        """
        parsed = [Slot.parse(slot, self.inputs.size) for slot in slots]
        self._views = {slot: self._views.get(slot) or self._new_view(slot) for slot in parsed}
        for slot, (view, address) in self._views.items():
            same_form = (tuple(view.shape), view.stride(), view.data_ptr()) == (slot.shape, slot.stride, address)
            if not same_form or view.requires_grad:
                self._views[slot] = self._new_view(slot)
        return shared_tensors.decode(tree, lambda index: self._views[parsed[index]][0], with_objects=True)

    def _new_view(self, slot: Slot) -> tuple[Tensor, int]:
        view = self.inputs.view(slot)
        return view, view.data_ptr()

    def forget(self) -> None:
        """Drops the arguments of the last call."""
        self._views.clear()

    def copy_out(self, result: Any) -> dict[str, Any]:
        """Copies what a forward returned to `outputs`: the fields of replies.CallResult."""
        tensors: list[dict[str, Any]] = []
        arguments = [view for view, _ in self._views.values()]
        outputs = shared_tensors.encode(result, lambda tensor: self._copy_tensor(tensor, arguments, tensors))
        return {"outputs": outputs, "tensors": tensors}

    def _copy_tensor(self, tensor: Tensor, arguments: list[Tensor], tensors: list[dict[str, Any]]) -> int:
        """Copies one output and appends its description, with what its bytes alone do not show. Returns its index."""
        if tensor.layout != torch.strided:
            raise NotSerializable(f"an output with layout {tensor.layout}")
        if tensor.is_neg():
            raise NotSerializable("an output whose sign is changed when it is read")
        expanded = shared_tensors.repeats(tensor)
        shares = tensor.numel() > 0 and any(
            shared_tensors.overlaps(tensor, other) for other in arguments if other.numel()
        )
        slot = self.outputs.put(tensor, dense=True)
        tensors.append({"slot": slot.to_json(), "expanded": expanded, "shares": shares})
        return len(tensors) - 1

    def copy_as_many(self, tensors: list[Tensor]) -> list[list]:
        """Copies tensors to `outputs`, as many as there is room for. Returns their slots as JSON."""
        slots: list[list] = []
        with suppress(NotSerializable):
            for tensor in tensors:
                slots.append(self.outputs.put(tensor, dense=True).to_json())
        return slots
