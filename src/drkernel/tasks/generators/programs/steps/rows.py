"""Steps along dimensions: reductions, statistics that go back to what they are of, softmax, norms."""

from __future__ import annotations

import random
from collections.abc import Sequence

from drkernel.tasks.generators.graphs.dims import Dim
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps.pointwise import SMALL_NUMBERS, activation, fraction, number, positive

Sides = list[Dim | int]
_OF_ONE = ("mean", "mean", "sum", "amax", "amin", "logsumexp", "std", "var", "norm", "max", "min")
_OF_SEVERAL = ("mean", "mean", "sum", "amax", "amin", "logsumexp", "std", "var")
_ALONG = (
    "F.softmax({x}, dim={d})",
    "torch.softmax({x}, dim={d})",
    "F.softmax({x} / {p}, dim={d})",
    "F.log_softmax({x}, dim={d})",
    "F.softmin({x}, dim={d})",
    "F.normalize({x}, dim={d})",
    "F.normalize({x}, p=1, dim={d})",
    "torch.cumsum({x}, dim={d})",
    "{x} / ({x}.norm(dim={d}, keepdim=True) + {e})",
    "{x} / ({x}.abs().sum(dim={d}, keepdim=True) + {e})",
    "{x} * torch.rsqrt({x}.pow(2).mean(dim={d}, keepdim=True) + {e})",
    "({x} - {x}.mean(dim={d}, keepdim=True)) / ({x}.std(dim={d}, keepdim=True) + {e})",
    "({x} - {x}.mean({d}, keepdim=True)) / torch.sqrt({x}.var({d}, unbiased=False, keepdim=True) + {e})",
    "{x} - torch.logsumexp({x}, dim={d}, keepdim=True)",
    "torch.exp({x} - {x}.amax(dim={d}, keepdim=True))",
    "{x} - {x}.amax(dim={d}, keepdim=True)",
    "{x} - {x}.mean(dim={d}, keepdim=True)",
    "{x} * torch.sigmoid({x}.mean(dim={d}, keepdim=True))",
    "({x} - {x}.amin({d}, keepdim=True)) / ({x}.amax({d}, keepdim=True) - {x}.amin({d}, keepdim=True) + {e})",
    "F.softmax({x}, dim={d}) * {x}",
    "{x} / torch.sqrt({x}.pow(2).sum(dim={d}, keepdim=True) + {e})",
)


def dims_of(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Dimensions that are reduced: one mostly, the last ones else."""
    kinds: list[tuple[int, ...]] = [(rank - 1,)] * 4
    kinds += [(1,)] * 3 * (rank > 1) + [(rank - 2,)] * (rank > 2)
    kinds += [tuple(range(2, rank))] * 4 * (rank > 3) + [tuple(range(1, rank))] * (rank > 2) + [(2,)] * (rank > 3)
    return rng.choice(kinds)


def reduced(shape: Sequence[Dim], dims: Sequence[int], keep: bool) -> Sides:
    found: Sides = []
    for place, dim in enumerate(shape):
        if place not in dims:
            found.append(dim)
        elif keep:
            found.append(1)
    return found


def statistic(program: Program, x: Value, dims: Sequence[int], keep: bool) -> Value:
    """A number for all that is reduced."""
    rng = program.rng
    name = rng.choice(_OF_ONE if len(dims) == 1 else _OF_SEVERAL)
    told = str(dims[0] if rng.random() < 0.7 else dims[0] - x.rank) if len(dims) == 1 else str(tuple(dims))
    words = f"dim={told}" + ", keepdim=True" * keep
    if name in ("std", "var") and rng.random() < 0.4:
        words += ", unbiased=False"
    behind = "[0]" if name in ("max", "min") else ""
    owner = rng.choice((f"torch.{name}({x.name}, {words})", f"{x.name}.{name}({words})"))
    return program.let(owner + behind, reduced(x.shape, dims, keep))


def reduce(program: Program) -> Value:
    x = program.value
    if x.rank < 2:
        raise Unfit
    dims = dims_of(program.rng, x.rank)
    return statistic(program, x, dims, program.rng.random() < 0.5)


def along(program: Program) -> Value:
    """What has the shape of the value and is computed along one of its dimensions."""
    x, rng = program.value, program.rng
    if not x.rank:
        raise Unfit
    d = rng.choice([x.rank - 1, x.rank - 1, min(1, x.rank - 1), -1])
    text = rng.choice(_ALONG).format(x=x.name, d=d, e=rng.choice(SMALL_NUMBERS), p=positive(rng))
    return program.let(text, x.shape)


def over_channels(program: Program) -> Value:
    """A number for all channels, or what is computed along them."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    if rng.random() < 0.6:
        return statistic(program, x, (1,), rng.random() < 0.75)
    text = rng.choice(_ALONG).format(x=x.name, d=1, e=rng.choice(SMALL_NUMBERS), p=positive(rng))
    return program.let(text, x.shape)


def back(program: Program) -> Value:
    """A statistic, something of it, and the value again."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    made = statistic(program, x, dims_of(rng, x.rank), True)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        made = activation(program)
    text = rng.choice(("{x} - {m}", "{x} * {m}", "{x} + {m}", "{m} * {x}", "torch.maximum({x}, {m})", "{m} - {x}"))
    return program.let(text.format(x=x.name, m=made.name), x.shape)


def several(program: Program) -> Value:
    """Two statistics of one value, joined, side by side or one above the other."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    dims = dims_of(rng, x.rank)
    first, second = (statistic(program, x, dims, True) for _ in range(2))
    if program.body[-1][1] == program.body[-2][1]:
        raise Unfit
    kind = rng.random()
    if kind < 0.35 and dims == (1,):
        return program.let(f"torch.cat([{first.name}, {second.name}], dim=1)", [first.shape[0], 2, *first.shape[2:]])
    if kind < 0.45:
        return program.let(f"torch.stack([{first.name}, {second.name}], dim=-1)", [*first.shape, 2])
    joined = rng.choice(("{0} - {1}", "{0} + {1}", "{0} * {1}", "{0} + {c} * {1}", "{0} * {c} - {1}"))
    made = program.let(joined.format(first.name, second.name, c=number(rng)), first.shape)
    if rng.random() < 0.4:
        made = program.let(f"{x.name} * torch.sigmoid({made.name})", x.shape)
    return made


def blend(program: Program) -> Value:
    """A value and its softmax or its mean in one sum."""
    x, rng = program.value, program.rng
    other = along(program) if rng.random() < 0.6 else back(program)
    q = fraction(rng)
    texts = (f"{x.name} + {q} * {other.name}", f"{x.name} * {other.name}", f"{q} * {x.name} + (1 - {q}) * {other.name}")
    return program.let(rng.choice(texts), x.shape)


def widened(program: Program) -> Value:
    """Of 16 bits: some steps in 32, and back."""
    x, rng = program.value, program.rng
    if program.dtype == "float32":
        raise Unfit
    program.let(rng.choice((f"{x.name}.float()", f"{x.name}.to(torch.float32)")), x.shape)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((along, along, activation, back))(program)
    made = program.value
    return program.let(f"{made.name}.to({rng.choice((f'{x.name}.dtype', f'torch.{program.dtype}'))})", x.shape)


def norm(program: Program) -> Value:
    """A norm that is a module, or a function of F."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    kinds = ["layer", "layer", "rms"] + (["batch", "batch", "group"] if x.rank != 3 or rng.random() < 0.4 else [])
    kinds += ["batch", "batch", "batch", "group", "group", "instance", "one"] * (x.rank > 3)
    eps = rng.choice(("", "", "", ", eps=1e-6", ", eps=1e-3", ", eps=1e-8"))
    return {"layer": _layer, "rms": _layer, "group": _group, "one": _group}.get(kind := rng.choice(kinds), _channels)(
        program, x, kind, eps
    )


def _layer(program: Program, x: Value, kind: str, eps: str) -> Value:
    last = x.shape[-2:] if x.rank > 2 and program.rng.random() < 0.1 else x.shape[-1:]
    text = last[0].text if len(last) == 1 else f"({', '.join(dim.text for dim in last)})"
    made = f"nn.LayerNorm({text}{eps})" if kind == "layer" else f"nn.RMSNorm({text}, eps=1e-6)"
    if kind == "layer" and program.rng.random() < 0.15:
        made = f"nn.LayerNorm({text}{eps}, elementwise_affine=False)"
    return program.let(f"{program.hold(made, 'norm')}({x.name})", x.shape)


def _group(program: Program, x: Value, kind: str, eps: str) -> Value:
    channels = x.shape[1]
    fit = [g for g in (2, 4, 4, 8, 8, 16, 32) if channels.full % g == channels.small % g == 0 and channels.small > g]
    groups = 1 if kind == "one" or not fit else program.rng.choice(fit)
    affine = ", affine=False" * (program.rng.random() < 0.1)
    return program.let(
        f"{program.hold(f'nn.GroupNorm({groups}, {channels.text}{eps}{affine})', 'norm')}({x.name})", x.shape
    )


def _channels(program: Program, x: Value, kind: str, eps: str) -> Value:
    rank = {2: 1, 3: 1, 4: 2, 5: 3}[x.rank]
    affine = ", affine=True" * (kind == "instance" and program.rng.random() < 0.4)
    made = f"nn.{kind.title()}Norm{rank}d({x.shape[1].text}{eps}{affine})"
    return program.let(f"{program.hold(made, 'norm')}({x.name})", x.shape)
