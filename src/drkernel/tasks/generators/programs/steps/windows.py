"""Steps on windows and neighbours: pools of powers, padded pools, halves that gate, stencils, layers with frames."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.tasks.generators.graphs.dims import Dim, as_dim, count, product
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import layers
from drkernel.tasks.generators.programs.steps.pointwise import fraction

_MANY = 2**16
"""Elements of a value at small sizes beyond which none is made larger."""
_FRAMES = ("reflect", "replicate", "circular")


def _sides(x: Value, kernel: int, stride: int, padding: int = 0) -> list[Dim]:
    return [layers.side_out(side, kernel, stride, padding) for side in x.shape[2:]]


def _has_places(x: Value, least: int) -> int:
    """How many dimensions of places a value has."""
    if x.rank not in (3, 4, 5) or min(min(side.small, side.full) for side in x.shape[2:]) < least:
        raise Unfit
    return x.rank - 2


def power_pool(program: Program) -> Value:
    """The sums of powers in windows, and their roots."""
    x, rng = program.value, program.rng
    rank = _has_places(x, 4)
    kernel, stride = rng.choice(((2, 2), (2, 2), (3, 2), (3, 3), (4, 4), (4, 2), (3, 1), (2, 1)))
    power = rng.choice(("2", "2", "2.0", "2.0", "1", "1.0"))
    told = rng.choice((f", {stride}", f", stride={stride}")) if stride != kernel or rng.random() < 0.5 else ""
    text = f"F.lp_pool{rank}d({x.name}, {power}, {kernel}{told})"
    if rng.random() < 0.4:
        text = f"{program.hold(f'nn.LPPool{rank}d({power}, {kernel}{told})', 'pool')}({x.name})"
    return program.let(text, (*x.shape[:2], *_sides(x, kernel, stride)))


def padded_pool(program: Program) -> Value:
    """A pool whose windows reach over the edge; what lies there counts, or does not."""
    x, rng = program.value, program.rng
    rank = _has_places(x, 5)
    kernel, stride, padding = rng.choice(((3, 2, 1), (3, 2, 1), (2, 2, 1), (5, 2, 2), (4, 2, 1), (3, 3, 1), (5, 3, 1)))
    name = rng.choice(("avg", "avg", "avg", "max"))
    more = f", stride={stride}, padding={padding}"
    more += ", count_include_pad=False" * (name == "avg" and rng.random() < 0.6)
    text = f"F.{name}_pool{rank}d({x.name}, {kernel}{more})"
    if rng.random() < 0.5:
        text = f"{program.hold(f'nn.{name.title()}Pool{rank}d({kernel}{more})', 'pool')}({x.name})"
    return program.let(text, (*x.shape[:2], *_sides(x, kernel, stride, padding)))


def row_pool(program: Program) -> Value:
    """Neighbours in a row become one: rows as signals of one channel, or windows by hand."""
    x, rng = program.value, program.rng
    k = rng.choice((2, 2, 4, 4, 8, 16))
    if x.rank not in (2, 3) or x.shape[-1].full % k or x.shape[-1].small % k or x.shape[-1].small <= k:
        raise Unfit
    made = (*x.shape[:-1], x.shape[-1] // k)
    name = rng.choice(("avg", "avg", "max"))
    if x.rank == 3:
        return program.let(f"F.{name}_pool1d({x.name}, {k})", made)
    text = f"F.{name}_pool1d({x.name}.unsqueeze(1), {k}).squeeze(1)"
    if rng.random() < 0.4:
        text = f"{program.hold(f'nn.{name.title()}Pool1d({k})', 'pool')}({x.name}[:, None]).squeeze(1)"
    return program.let(text, made)


def glu(program: Program) -> Value:
    """Half of a dimension gated by the other half; often of a layer that is twice as wide."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    if rng.random() < 0.5:
        width = x.shape[1] if x.rank > 3 else x.shape[-1]
        x = layers.layer(program, 2 * program.size("hidden") if rng.random() < 0.5 else 2 * width)
    fit = [d for d in range(1, x.rank) if x.shape[d].full % 2 == x.shape[d].small % 2 == 0]
    if not fit:
        raise Unfit
    d = rng.choice([*fit, fit[-1]])
    shape = [*x.shape[:d], x.shape[d] // 2, *x.shape[d + 1 :]]
    last = d == x.rank - 1 and rng.random() < 0.5
    told = "" if last else f", dim={rng.choice((d, d - x.rank))}"
    text = f"F.glu({x.name}{told})"
    if rng.random() < 0.3:
        text = f"{program.hold(f'nn.GLU({told[2:]})', 'gate')}({x.name})"
    return program.let(text, shape)


def stencil(program: Program) -> Value:
    """A value and its neighbours, across the edge or without it."""
    x, rng = program.value, program.rng
    if x.rank < 2 or min(x.shape[-1].small, x.shape[-2].small) < 4:
        raise Unfit
    dims = [x.rank - 1] if rng.random() < 0.4 else [x.rank - 2, x.rank - 1]
    how, q = rng.random(), fraction(rng)
    if how < 0.6:
        moves = [(s, d) for d in dims for s in (1, -1)]
        if rng.random() < 0.25:
            moves = [(rng.choice((1, 2, 3, -1, -2)), d) for d in dims]
        texts = [rng.choice(("torch.roll({x}, {s}, dims={d})", "{x}.roll({s}, {d})")) for _ in moves]
        names = [
            program.let(t.format(x=x.name, s=s, d=d), x.shape).name for t, (s, d) in zip(texts, moves, strict=True)
        ]
        near = program.let(f"{' + '.join(names)} - {len(names)}.0 * {x.name}", x.shape)
        text = rng.choice((f"{x.name} + {q} * {near.name}", f"{near.name} * {q}", f"{x.name} - {q} * {near.name}"))
        return program.let(text, x.shape)
    shape = (*x.shape[:-1], x.shape[-1] - 2)
    texts_of = (
        "{x}[..., 2:] - 2.0 * {x}[..., 1:-1] + {x}[..., :-2]",
        "({x}[..., 2:] - {x}[..., :-2]) / 2.0",
        "{x}[..., 1:-1] + {q} * ({x}[..., :-2] + {x}[..., 2:])",
        "torch.maximum({x}[..., 2:], {x}[..., :-2]) - {x}[..., 1:-1]",
    )
    return program.let(rng.choice(texts_of).format(x=x.name, q=q), shape)


def framed(program: Program) -> Value:
    """A frame that repeats what is inside, and a convolution that takes it off again."""
    x, rng = program.value, program.rng
    rank = _has_places(x, 4)
    if rank > 2:
        raise Unfit
    mode, wide = rng.choice(_FRAMES), rng.choice((1, 1, 1, 2))
    sides = [side + 2 * wide for side in x.shape[2:]]
    text = f'F.pad({x.name}, ({", ".join([str(wide)] * 2 * rank)}), mode="{mode}")'
    if mode != "circular" and rng.random() < 0.5:
        kind = {"reflect": "Reflection", "replicate": "Replication"}[mode]
        text = f"{program.hold(f'nn.{kind}Pad{rank}d({wide})', 'frame')}({x.name})"
    made = program.let(text, (*x.shape[:2], *sides))
    if rng.random() < 0.25:
        return made
    out = program.size("channels")
    conv = program.hold(f"nn.Conv{rank}d({x.shape[1].text}, {out.text}, {2 * wide + 1})", "conv")
    return program.let(f"{conv}({made.name})", (x.shape[0], out, *x.shape[2:]))


def upward(program: Program) -> Value:
    """A transposed convolution of groups, or with sides of its own; perhaps the edges are cut off."""
    x, rng = program.value, program.rng
    _has_places(x, 3)
    channels = x.shape[1]
    fit = [g for g in (2, 2, 4, 8) if channels.full % g == channels.small % g == 0]
    groups = rng.choice(fit) if fit and rng.random() < 0.6 else 1
    out = channels if groups > 1 and rng.random() < 0.5 else product((as_dim(4 * groups), as_dim(rng.choice((2, 4)))))
    kernel, stride, padding, added = rng.choice(((2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0), (3, 1, 1, 0), (5, 2, 2, 1)))
    more = f", groups={groups}" * (groups > 1) + ", bias=False" * (rng.random() < 0.3)
    made = layers.held_transposed(program, out, kernel, stride, padding, added, more)
    if count(made.shape, small=True) > _MANY:
        raise Unfit
    if rng.random() < 0.75:
        return made
    made = layers.activation(program)
    a, b = rng.choice(((1, 1), (1, 2), (2, 2)))
    return program.let(f"{made.name}[..., {a}:-{b}]", (*made.shape[:-1], made.shape[-1] - (a + b)))


def enlarged(program: Program) -> Value:
    """A transposed convolution of any window, stride and padding."""
    x, rng = program.value, program.rng
    rank = x.rank - 2
    if rank not in (1, 2, 3):
        raise Unfit
    kernel, stride = rng.choice((2, 3, 3, 3, 4, 4, 5)), rng.choice((1, 2, 2, 2, 2, 3))
    padding, added = rng.choice((0, 0, 1, 1, 2)), rng.choice((0, 0, 1)) if stride > 1 else 0
    if 2 * padding > kernel:
        raise Unfit
    out = program.size("channels")
    made = layers.held_transposed(program, out, kernel, stride, padding, added, ", bias=False" * (rng.random() < 0.15))
    if count(made.shape, small=True) > _MANY:
        raise Unfit
    return made


def standardised(program: Program) -> Value:
    """A convolution or a layer whose weight has mean 0 and deviation 1 for each output, or length 1."""
    x, rng = program.value, program.rng
    if x.rank < 2 or program.dtype != "float32":
        raise Unfit
    rank, k = (x.rank - 2 if x.rank > 3 else 0), rng.choice((1, 3, 3))
    wide, out = (x.shape[1] if rank else x.shape[-1]), program.size("channels" if rank else "hidden")
    if wide.small < 2 or (not rank and wide.full > 8192):
        raise Unfit
    whole, few = [out, wide, *[as_dim(k)] * rank], [out, *[as_dim(1)] * (1 + rank)]
    listed, scale = ", ".join(dim.text for dim in whole), rng.choice(("0.05", "0.1", "0.02"))
    name = program.hold(f"nn.Parameter(torch.randn({listed}) * {scale})", "weight")
    dims, e = str(tuple(range(1, 2 + rank)) if rank else 1), rng.choice(("1e-5", "1e-10", "1e-6"))
    if rng.random() < 0.5:
        made = program.let(f"torch.var_mean({name}, dim={dims}, keepdim=True, unbiased=False)", few)
        program.values.remove(made)
        weight = program.let(f"({name} - {made.name}[1]) / torch.sqrt({made.name}[0] + {e})", whole)
    elif rng.random() < 0.6:
        mean = program.let(f"{name}.mean(dim={dims}, keepdim=True)", few)
        std = program.let(f"{name}.std(dim={dims}, keepdim=True)", few)
        weight = program.let(f"({name} - {mean.name}) / ({std.name} + {e})", whole)
    else:
        weight = program.let(f"{name} / torch.sqrt(({name} ** 2).sum(dim={dims}, keepdim=True) + {e})", whole)
    if rank:
        text = f"F.conv{rank}d({x.name}, {weight.name}, padding={k // 2})"
        return program.let(text, (x.shape[0], out, *x.shape[2:]))
    return program.let(f"F.linear({x.name}, {weight.name})", (*x.shape[:-1], out))


def dense(program: Program) -> Value:
    """Layers that each see all that came before them, side by side."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 4):
        raise Unfit
    grown = program.size("channels" if x.rank == 4 else "hidden")
    parts = [x]
    for _ in range(rng.choice((2, 2, 3, 4))):
        names, width = _side_by_side(parts)
        made = program.let(f"torch.cat([{names}], {rng.choice(('1', 'dim=1'))})", (x.shape[0], width, *x.shape[2:]))
        if x.rank == 4:
            norm = program.hold(f"nn.BatchNorm2d({width.text})", "norm")
            made = program.let(f"F.relu({norm}({made.name}))", made.shape)
            layer = program.hold(f"nn.Conv2d({width.text}, {grown.text}, 3, padding=1, bias=False)", "conv")
        else:
            layer = program.hold(f"nn.Linear({width.text}, {grown.text})")
        made = program.let(f"{layer}({made.name})", (x.shape[0], grown, *x.shape[2:]))
        parts.append(layers.activation(program) if x.rank == 2 else made)
    names, width = _side_by_side(parts)
    return program.let(f"torch.cat([{names}], dim=1)", (x.shape[0], width, *x.shape[2:]))


def _side_by_side(parts: Sequence[Value]) -> tuple[str, Dim]:
    """The names of values, and how many channels they have together."""
    width = as_dim(0)
    for part in parts:
        width = width + part.shape[1]
    return ", ".join(part.name for part in parts), width
