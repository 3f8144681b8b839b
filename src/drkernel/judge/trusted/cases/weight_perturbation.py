"""Weights that are not the defaults: what a submission assumes about its parameters must not matter.

Default parameters hide errors: an affine layer of ones and zeros can be left out unnoticed. So parameters are perturbed
on both sides. Where a submission keeps them under the reference's names, or as equal, transposed, reshaped or
concatenated values, they are overwritten after construction (`follow`). Where it packs them in ways that cannot be
followed, both sides are constructed anew under `boundary.construction.perturbed_construction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from drkernel.judge.boundary.construction import MEAN, MOST_SMALL, VARIANCE, with_noise, with_running_noise
from drkernel.judge.trusted.outputs import is_float, leaves

_SMALL, _RARE = 0.1, 256
"""Root mean square of a vector that matters; and one of how many elements of a matrix becomes an outlier."""
_SMALL_ROW, _DEFAULT_ROW = 0.25, 3.0**-0.5
"""L2 norms of rows of a matrix: below which they are small, and by default."""
_DEEP = 9
"""Norms with running statistics from which on these follow from a batch; layers from which on outputs may not follow
from inputs."""
FOLLOWS = 2.0**-4
"""How much of their size outputs differ by between two draws of the inputs, where errors in early layers show."""
_WIDE = 2.0**18
"""Root mean square of a matrix beyond the range of fp16, which ends at 2**16."""


def perturbed(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other values for the floating parameters and running statistics of a model, by name; signs and zeros are kept.

    See `with_noise` for their distribution. Where a tensor is zero altogether, it becomes anything. A vector that is
    small (a bias of 1/sqrt(K), a layer scale of 1e-6) is made large enough to matter beside outputs of size one. A
    matrix whose rows are small (0.02 an element) gets those of PyTorch's default, since what follows it would see
    numbers near zero, where activations are lines. One in _RARE of its elements becomes an outlier, which a coarse
    scale cannot hold.
    """
    running = ((name, b) for name, b in model.named_buffers() if name.rpartition(".")[2] in (MEAN, VARIANCE))
    tensors = [(n, t.detach()) for n, t in (*model.named_parameters(), *running) if t.is_floating_point()]
    generators = {device: torch.Generator(device).manual_seed(seed) for device in {t.device for _, t in tensors}}
    variances = [name for name, _ in tensors if name.rpartition(".")[2] == VARIANCE]
    order = torch.randperm(len(variances), generator=torch.Generator("cpu").manual_seed(seed), device="cpu").tolist()
    small = {variances[place] for place in order[:MOST_SMALL]}
    return {name: _perturbed(name, tensor, generators[tensor.device], name in small) for name, tensor in tensors}


def _perturbed(name: str, tensor: Tensor, generator: torch.Generator, small: bool) -> Tensor:
    if (last := name.rpartition(".")[2]) in (MEAN, VARIANCE):
        return with_running_noise(last, tensor, generator, small)
    values = with_noise(tensor, generator)
    if tensor.dim() == 1 and tensor.numel() > 1:
        size = float(values.double().square().mean().sqrt())
        return values if size >= _SMALL or not size else values * (_SMALL / size)
    zero = tensor == 0
    if not bool(zero.all()):
        values = torch.where(zero, tensor, values)
    if tensor.dim() > 1 and (row := _row_of(tensor)) < _SMALL_ROW:
        values = values * (_DEFAULT_ROW / row if row else 1.0)
    if tensor.dim() > 1 and tensor.numel() >= 4 * _RARE:
        places = torch.randint(_RARE, tensor.shape, generator=generator, device=tensor.device)
        values = torch.where(places == 0, 4 * values, values)
    return values


def of_a_batch(model: nn.Module, forward: Callable[[], object]) -> dict[str, Tensor]:
    """Running statistics of a batch, as far off as those are that the model has; nothing for a model with few norms.

    A deep network is built for norms that work. With statistics that have nothing to do with its values, these vanish
    from layer to layer, and in evaluation its outputs are those of its last bias. Or they grow where variances are
    small, and no bias shows beside them. So each norm has the statistics of what the norms before it make of the batch
    in evaluation.

    Args:
        model: its weights are perturbed, so its running means and variances lie around 0 and 1.
        forward: calls it.
    """
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _NormBase) and m.running_var is not None}
    if len(norms) < _DEEP:
        return {}
    off = {m: (m.running_mean.clone(), m.running_var.clone()) for m in norms.values()}  # type: ignore[union-attr]
    was_training = model.training
    set_around = lambda norm, given: _set_around(norm, given[0], *off[norm])
    hooks = [norm.register_forward_pre_hook(set_around) for norm in off]
    try:
        model.eval()
        forward()
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    named = {f"{name}.".lstrip("."): norm for name, norm in norms.items()}
    return {f"{at}{last}": getattr(norm, last).clone() for at, norm in named.items() for last in (MEAN, VARIANCE)}


def _set_around(norm: nn.Module, values: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Sets a norm's running statistics to those of its input, as far off as these are from 0 and 1."""
    channels = values.transpose(0, 1) if values.dim() > 1 and values.shape[1] == len(mean) else values
    channels = channels.reshape(len(mean), -1)
    spread = channels.var(1, correction=0)
    assign(norm, {MEAN: channels.mean(1) + spread.sqrt() * mean, VARIANCE: spread * variance})


def that_keep_values(model: nn.Module, outputs: Callable[[nn.Module, int], object]) -> dict[str, Tensor]:
    """Larger matrices for a deep network whose outputs hardly follow from its inputs; nothing for others.

    By default each layer of PyTorch's makes values smaller, and a bias does not. Without norms between them, the
    outputs of a deep network are those of its last biases, and an error in its first layers is below rounding. With a
    mean square of 2 over the number of terms (He et al., 2015), a layer and a ReLU keep the size of values.

    Args:
        model: its weights are perturbed.
        outputs: of a model, to the inputs of a draw: 0 or 1.
    """
    if not (before := share_that_follows(model, outputs)) < FOLLOWS:
        return {}
    kept = {name: matrix.clone() for name, matrix in _matrices(model).items()}
    larger = scaled_rows(kept, math.sqrt(2))
    assign(model, larger)
    after = share_that_follows(model, outputs)
    assign(model, kept)
    return larger if after > before else {}


def share_that_follows(model: nn.Module, outputs: Callable[[nn.Module, int], object]) -> float:
    """By how much of their size outputs of a deep network in evaluation differ between two draws of its inputs; 1 for
    other networks."""
    if len(_matrices(model)) < _DEEP:
        return 1.0
    was_training = model.training
    try:
        model.eval()
        return share_that_differs(outputs(model, 0), outputs(model, 1))
    finally:
        model.train(was_training)


def _matrices(model: nn.Module) -> dict[str, Tensor]:
    """Those of linear layers and convolutions, by name."""
    layers = [name for name, layer in model.named_modules() if isinstance(layer, (nn.Linear, _ConvNd))]
    names = {f"{name}.weight".lstrip(".") for name in layers}
    return {name: weight.detach() for name, weight in model.named_parameters() if name in names}


def share_that_differs(first: object, second: object) -> float:
    """Of the size of floating outputs; NaN where they are all 0 or not finite, infinite where their shapes differ."""
    both = [[v.double() for _, v in leaves(some) if isinstance(v, Tensor) and is_float(v)] for some in (first, second)]
    if [value.shape for value in both[0]] != [value.shape for value in both[1]]:
        return math.inf
    square = lambda values: math.fsum(float(value.square().sum()) for value in values)
    size = square(both[0])
    return math.sqrt(square(a - b for a, b in zip(*both, strict=True)) / size) if size else math.nan


def scaled_rows(matrices: Mapping[str, Tensor], norm: float) -> dict[str, Tensor]:
    """Matrices whose rows have this L2 norm, but for those that have more."""
    rows = {name: _row_of(matrix) for name, matrix in matrices.items()}
    return {name: matrix * max(1.0, norm / rows[name]) if rows[name] else matrix for name, matrix in matrices.items()}


def _row_of(matrix: Tensor) -> float:
    """The root mean square of the norms of rows: of the terms of each output of a layer."""
    return math.sqrt(float(matrix.double().square().sum()) / max(1, len(matrix)))


def beyond_half(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same, with matrices multiplied by powers of two, so that fp16 does not hold most of their numbers. TF32 and
    fp32 have the same mantissas as before."""
    return {name: _beyond_half(value) if value.dim() > 1 else value for name, value in values.items()}


def _beyond_half(values: Tensor) -> Tensor:
    size = float(values.double().square().mean().sqrt())
    return values * 2.0 ** round(math.log2(_WIDE / size)) if size and values.element_size() >= 4 else values


def assign(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Overwrites parameters and buffers in place."""
    targets = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, value in values.items():
            targets[name].copy_(value)


def follow(
    reference: Mapping[str, Tensor], submission: Mapping[str, Tensor], values: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """What to write into a submission's tensors so that they follow the reference's from `reference` to `values`.

    Both sides were constructed under the same seed.

    Returns:
        New values by the submission's names; None where some of `values` has no place in the submission.
    """
    writes: dict[str, Tensor] = {}
    unused = dict.fromkeys(values)
    for name, tensor in submission.items():
        if name in values and reference[name].shape == tensor.shape:
            writes[name] = values[name]
            unused.pop(name, None)
    for name, tensor in submission.items():
        if name not in writes and tensor.is_floating_point() and (found := _origin(tensor, reference, values, unused)):
            names, writes[name] = found
            for used in names:
                unused.pop(used, None)
    return None if unused else writes


def _origin(tensor: Tensor, reference: Mapping, values: Mapping, unused: Mapping) -> tuple[list[str], Tensor] | None:
    """The names of the reference's tensors whose values a submission's tensor holds, and the new values in its form."""
    for name in sorted(values, key=lambda name: name not in unused):
        old, new = reference[name], values[name]
        if old.numel() != tensor.numel():
            continue
        forms = [lambda t: t.reshape(tensor.shape)]
        if old.dim() > 1:
            forms.append(lambda t: t.transpose(-1, -2).reshape(tensor.shape))
        for form in forms:
            if _equal(form(old), tensor):
                return [name], form(new)
    names = list(values)
    for first in range(len(names)):
        for last in range(first + 2, len(names) + 1):
            group = names[first:last]
            if any(reference[n].dim() == 0 or reference[n].shape[1:] != tensor.shape[1:] for n in group):
                break
            if _equal(torch.cat([reference[n] for n in group]), tensor):
                return group, torch.cat([values[n] for n in group])
    return None


def _equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first.double(), second.double())
