"""Layers, pools, gates, branches; modules that are called twice."""

from __future__ import annotations

import re

from drkernel.tasks.generators.graphs.dims import Dim, Shape, alike, as_dim, same
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import rows
from drkernel.tasks.generators.programs.steps.pointwise import activation, with_number

_WINDOWS = (
    (2, 2, 0),
    (2, 2, 0),
    (3, 2, 1),
    (3, 2, 0),
    (3, 1, 1),
    (2, 1, 0),
    (3, 3, 0),
    (4, 4, 0),
    (4, 2, 1),
    (5, 2, 2),
    (8, 4, 0),
)
"""Kernel, stride and padding of pools."""


def _width(program: Program, old: Dim, role: str = "hidden") -> Dim:
    return old if program.rng.random() < 0.4 else program.size(role)


def linear(program: Program, out: Dim | None = None) -> Value:
    """A layer of the last dimension."""
    x, rng = program.value, program.rng
    if not x.rank or x.shape[-1].full > 40000:
        raise Unfit
    out = out if out is not None else _width(program, x.shape[-1])
    bias = ", bias=False" * (rng.random() < 0.35)
    layer = program.hold(f"nn.Linear({x.shape[-1].text}, {out.text}{bias})")
    program.reusable.append((layer, x.shape, (*x.shape[:-1], out)))
    return program.let(f"{layer}({x.name})", (*x.shape[:-1], out))


def raw(program: Program) -> Value:
    """A product with a parameter; or with the weight of a layer that is there, the other way round."""
    x, rng = program.value, program.rng
    if x.rank < 2 or x.shape[-1].full > 8192:
        raise Unfit
    out = _width(program, x.shape[-1])
    turned = rng.random() < 0.4
    shape = (out, x.shape[-1]) if turned else (x.shape[-1], out)
    listed = ", ".join(dim.text for dim in shape)
    weight = program.hold(f"nn.Parameter(torch.randn({listed}) / {x.shape[-1].text} ** 0.5)", "weight")
    texts = ("F.linear({x}, {w})", "{x} @ {w}.t()") if turned else ("{x} @ {w}", "torch.matmul({x}, {w})")
    return program.let(rng.choice(texts).format(x=x.name, w=weight), (*x.shape[:-1], out))


def again(program: Program) -> Value:
    """A module that was called before, on this value."""
    x, rng = program.value, program.rng
    fit = [(n, made) for n, taken, made in program.reusable if alike(taken, x.shape)]
    if not fit:
        raise Unfit
    name, made = rng.choice(fit)
    return program.let(f"{name}({x.name})", made)


def side_out(side: Dim, kernel: int, stride: int, padding: int, dilation: int = 1) -> Dim:
    """A side after a convolution or a pool."""
    whole = side + (2 * padding - dilation * (kernel - 1) - 1)
    return whole + 1 if stride == 1 else whole // stride + 1


def side_out_transposed(side: Dim, kernel: int, stride: int, padding: int, added: int) -> Dim:
    """A side after a transposed convolution."""
    return (side - 1) * stride + (kernel - 2 * padding + added)


def convolution(program: Program, out: Dim | None = None, plain: bool = False) -> Value:
    """A convolution of any rank: pointwise, of groups, dilated, with strides."""
    x, rng = program.value, program.rng
    rank = x.rank - 2
    if rank not in (1, 2, 3):
        raise Unfit
    channels, more = x.shape[1], ""
    kernel, dilation = rng.choice((1, 1, 3, 3, 3, 3, 5, 7)), 1
    stride = 1 if plain else rng.choice((1, 1, 1, 1, 2, 2))
    padding = kernel // 2 if plain or rng.random() < 0.8 else 0
    if kernel == 3 and rng.random() < 0.1:
        dilation, padding = 2, 2
        more += ", dilation=2"
    out = out if out is not None else _width(program, channels, "channels")
    groups = "" if plain or rng.random() < 0.8 else f", groups={channels.text}"
    out = channels if groups else out
    more += groups + f", stride={stride}" * (stride > 1) + f", padding={padding}" * (padding > 0)
    more += ", bias=False" * (rng.random() < 0.4)
    layer = program.hold(f"nn.Conv{rank}d({channels.text}, {out.text}, {kernel}{more})", "conv")
    sides = [side_out(side, kernel, stride, padding, dilation) for side in x.shape[2:]]
    program.reusable.append((layer, x.shape, (x.shape[0], out, *sides)))
    return program.let(f"{layer}({x.name})", (x.shape[0], out, *sides))


def transposed(program: Program) -> Value:
    """A convolution that makes its input larger."""
    x, rng = program.value, program.rng
    rank = x.rank - 2
    if rank not in (1, 2, 3):
        raise Unfit
    kernel, stride, padding, added = rng.choice(((2, 2, 0, 0), (3, 1, 1, 0), (3, 2, 1, 1), (4, 2, 1, 0), (3, 1, 0, 0)))
    return held_transposed(program, _width(program, x.shape[1], "channels"), kernel, stride, padding, added)


def held_transposed(
    program: Program, out: Dim, kernel: int, stride: int, padding: int, added: int, more: str = ""
) -> Value:
    """A transposed convolution of the value to so many channels; `more`: further arguments, behind a comma."""
    x = program.value
    told = f", stride={stride}" * (stride > 1) + f", padding={padding}" * (padding > 0)
    told += f", output_padding={added}" * (added > 0) + more
    layer = program.hold(f"nn.ConvTranspose{x.rank - 2}d({x.shape[1].text}, {out.text}, {kernel}{told})", "deconv")
    sides = [side_out_transposed(side, kernel, stride, padding, added) for side in x.shape[2:]]
    return program.let(f"{layer}({x.name})", (x.shape[0], out, *sides))


def pool(program: Program) -> Value:
    """A pool of windows, or of all places."""
    x, rng = program.value, program.rng
    rank = x.rank - 2
    if rank not in (1, 2, 3) or x.shape[2].small < 4:
        raise Unfit
    if rng.random() < 0.25:
        size = rng.choice((1, 1, 1, 1, 2, 4))
        return program.let(f"F.adaptive_avg_pool{rank}d({x.name}, {size})", (*x.shape[:2], *[size] * rank))
    if rank > 1 and rng.random() < 0.12:
        sides = tuple(rng.choice((1, 2, 3, 4)) for _ in range(rank))
        text = f"F.{rng.choice(('max', 'avg'))}_pool{rank}d({x.name}, {sides})"
        return program.let(text, (*x.shape[:2], *(dim // side for dim, side in zip(x.shape[2:], sides, strict=True))))
    kernel, stride, padding = rng.choice(_WINDOWS)
    if x.shape[-1].small < kernel:
        raise Unfit
    more = f", stride={stride}" * (stride != kernel) + f", padding={padding}" * (padding > 0)
    name = rng.choice(("max", "max", "avg"))
    if rng.random() < 0.5:
        text = f"F.{name}_pool{rank}d({x.name}, {kernel}{more})"
    else:
        text = f"{program.hold(f'nn.{name.title()}Pool{rank}d({kernel}{more})', 'pool')}({x.name})"
    return program.let(text, (*x.shape[:2], *(side_out(side, kernel, stride, padding) for side in x.shape[2:])))


def layer(program: Program, out: Dim | None = None, plain: bool = False) -> Value:
    """A layer that suits the rank."""
    x = program.value
    if x.rank == 5 or (x.rank == 4 and not _is_of_heads(x)) or (x.rank == 3 and program.rng.random() < 0.25):
        return convolution(program, out, plain)
    return linear(program, out)


def _is_of_heads(x: Value) -> bool:
    return any(dim.text.startswith("head") for dim in x.shape)


def unit(program: Program) -> Value:
    """A layer, a norm, an activation."""
    made = layer(program)
    if program.rng.random() < 0.6:
        made = rows.norm(program)
    return activation(program) if program.rng.random() < 0.75 else made


def normed_first(program: Program) -> Value:
    """A norm, an activation, a layer."""
    rows.norm(program)
    if program.rng.random() < 0.6:
        activation(program)
    return layer(program)


def residual(program: Program) -> Value:
    """Some steps, and the value that they began with."""
    x, rng = program.value, program.rng
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        rng.choice((unit, unit, layer, rows.norm, activation, normed_first, feed_forward))(program)
    made = program.value
    if not alike(made.shape, x.shape):
        made = _fitted(program, x.shape)
    text = rng.choice(("{m} + {x}", "{x} + {m}", "{x} + {m}", "{x} + {q} * {m}", "{x} - {m}", "({x} + {m}) / 2"))
    made = program.let(text.format(x=x.name, m=made.name, q=rng.choice(("0.5", "0.1", "2.0"))), x.shape)
    return activation(program) if rng.random() < 0.4 else made


def _fitted(program: Program, shape: Shape) -> Value:
    """The value with the number of channels or features that a shape has."""
    made = program.value
    place = 1 if made.rank > 3 and not _is_of_heads(made) else -1
    if made.rank != len(shape) or place % made.rank >= made.rank:
        raise Unfit
    made = convolution(program, shape[1], plain=True) if place == 1 else linear(program, shape[-1])
    if not alike(made.shape, shape):
        raise Unfit
    return made


def feed_forward(program: Program) -> Value:
    """Wide and narrow again."""
    x = program.value
    if not x.rank:
        raise Unfit
    layer(program, program.size("hidden"), plain=True)
    activation(program)
    return _fitted(program, x.shape)


def conv_block(program: Program) -> Value:
    """A convolution, a norm of channels, an activation, perhaps a pool; as networks of images repeat them."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    made = convolution(program, plain=rng.random() < 0.7)
    if rng.random() < 0.85:
        kind = rng.choice(("Batch", "Batch", "Batch", "Instance"))
        norm = program.hold(f"nn.{kind}Norm{x.rank - 2}d({made.shape[1].text})", "norm")
        made = program.let(f"{norm}({made.name})", made.shape)
    if rng.random() < 0.85:
        made = activation(program) if rng.random() < 0.4 else program.let(f"F.relu({made.name})", made.shape)
    return pool(program) if rng.random() < 0.12 else made


def image_block(program: Program) -> Value:
    """Convolutions and the value before them, which another one may fit to them."""
    x, rng = program.value, program.rng
    if x.rank < 4:
        raise Unfit
    first = rng.choice((conv_block, conv_block, normed_first))
    first(program)
    for _ in range(rng.choice((0, 1, 1, 2))):
        rng.choice((conv_block, conv_block, channel_gate, first))(program)
    made = program.value
    kept = x
    if not alike(made.shape, x.shape):
        stride = 2 if made.shape[2].full < x.shape[2].full else 1
        conv = f"nn.Conv{x.rank - 2}d({x.shape[1].text}, {made.shape[1].text}, 1, stride={stride}, bias=False)"
        sides = [side_out(side, 1, stride, 0) for side in x.shape[2:]]
        kept = program.let(f"{program.hold(conv, 'shortcut')}({x.name})", (x.shape[0], made.shape[1], *sides))
        if rng.random() < 0.6:
            norm = program.hold(f"nn.BatchNorm{x.rank - 2}d({made.shape[1].text})", "norm")
            kept = program.let(f"{norm}({kept.name})", kept.shape)
        if not alike(made.shape, kept.shape):
            raise Unfit
    made = program.let(rng.choice((f"{made.name} + {kept.name}", f"{kept.name} + {made.name}")), made.shape)
    return program.let(f"F.relu({made.name})", made.shape) if rng.random() < 0.6 else made


def branches(program: Program) -> Value:
    """Several ways for one value, joined."""
    x, rng = program.value, program.rng
    if not x.rank:
        raise Unfit
    out = _width(program, x.shape[1] if x.rank > 3 else x.shape[-1], "channels" if x.rank > 3 else "hidden")
    parts = []
    for _ in range(rng.choice((2, 2, 2, 3, 4))):
        program.go_to(x)
        made = layer(program, out, plain=True)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            made = rng.choice((activation, activation, rows.norm, with_number))(program)
        parts.append(made)
    if not all(alike(part.shape, parts[0].shape) for part in parts):
        raise Unfit
    names = [part.name for part in parts]
    if rng.random() < 0.3:
        dim = 1 if x.rank > 3 else -1
        shape = list(parts[0].shape)
        shape[dim] = len(parts) * shape[dim]
        return program.let(f"torch.cat([{', '.join(names)}], dim={dim})", shape)
    sign = rng.choice((" + ", " + ", " * ", " * ", " - "))
    if rng.random() < 0.15 and len(parts) == 2:
        return program.let(f"torch.maximum({names[0]}, {names[1]})", parts[0].shape)
    return program.let(sign.join(names), parts[0].shape)


def gate(program: Program) -> Value:
    """A value weighted by a function of itself."""
    x, rng = program.value, program.rng
    if not x.rank:
        raise Unfit
    layer(program, x.shape[1] if x.rank > 3 and not _is_of_heads(x) else x.shape[-1], plain=True)
    made = program.value
    if not alike(made.shape, x.shape):
        raise Unfit
    squash = rng.choice(("torch.sigmoid", "torch.sigmoid", "torch.tanh", "F.silu", "F.gelu", "F.hardsigmoid", "F.relu"))
    made = program.let(f"{squash}({made.name})", x.shape)
    other = rng.choice([x, *program.alike(x)])
    texts = (
        "{x} * {m}",
        "{m} * {x}",
        "{m} * {x} + (1 - {m}) * {o}",
        "{x} + {m} * {o}",
        "{x} * (1 + {m})",
        "{o} * {m} + {x}",
    )
    return program.let(rng.choice(texts).format(x=x.name, m=made.name, o=other.name), x.shape)


def channel_gate(program: Program) -> Value:
    """Channels weighted by a network of their means."""
    x, rng = program.value, program.rng
    rank = x.rank - 2
    if rank not in (1, 2, 3):
        raise Unfit
    channels, width = x.shape[1], program.size("hidden", rng.choice(((4, 2), (8, 3), (16, 4), (32, 4))))
    places = tuple(range(2, x.rank)) if rank > 1 else 2
    how, squash = rng.random(), rng.choice(("torch.sigmoid", "torch.sigmoid", "F.hardsigmoid", "torch.tanh"))
    inner = rng.choice(("F.relu", "F.relu", "F.silu", "F.gelu"))
    if how < 0.35:
        pooled = program.let(f"F.adaptive_avg_pool{rank}d({x.name}, 1)", (x.shape[0], channels, *[1] * rank))
        names = [
            program.hold(f"nn.Conv{rank}d({a.text}, {b.text}, 1)", "fc")
            for a, b in ((channels, width), (width, channels))
        ]
        made = program.let(f"{inner}({names[0]}({pooled.name}))", (x.shape[0], width, *[1] * rank))
        made = program.let(f"{squash}({names[1]}({made.name}))", (x.shape[0], channels, *[1] * rank))
    else:
        pooled = program.let(f"{x.name}.{rng.choice(('mean', 'mean', 'amax'))}(dim={places})", (x.shape[0], channels))
        names = [
            program.hold(f"nn.Linear({a.text}, {b.text})", "fc") for a, b in ((channels, width), (width, channels))
        ]
        made = program.let(f"{inner}({names[0]}({pooled.name}))", (x.shape[0], width))
        made = program.let(f"{squash}({names[1]}({made.name}))", (x.shape[0], channels))
        spread = [f"[:, :{', None' * rank}]", f".view({x.name}.shape[0], {x.name}.shape[1]{', 1' * rank})"]
        spread.append(".unsqueeze(-1)" * rank)
        made = program.let(made.name + rng.choice(spread), (x.shape[0], channels, *[1] * rank))
    texts = (
        "{x} * {m}",
        "{x} * {m}",
        "{m} * {x}",
        "{x} + {x} * {m}",
        "{x} * {m} + {x}",
        "{x} * (1 + {m})",
        "{x} + {m}",
    )
    return program.let(rng.choice(texts).format(x=x.name, m=made.name), x.shape)


def film(program: Program) -> Value:
    """A scale and a shift for each channel, made from another input or from the value's means."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    width = x.shape[1] if x.rank > 3 else x.shape[-1]
    source = program.input((x.shape[0], program.size("features"))) if rng.random() < 0.6 else None
    if source is None:
        source = rows.statistic(program, x, tuple(range(2, x.rank)) if x.rank > 3 else (1,), False)
    made = []
    for _ in range(2):
        name = program.hold(f"nn.Linear({source.shape[-1].text}, {width.text})", "film")
        spread = "[:, :" + ", None" * (x.rank - 2) + "]" if x.rank > 3 else ".unsqueeze(1)"
        shape: list[Dim | int] = [x.shape[0], 1, width]
        if x.rank > 3:
            shape = [x.shape[0], width, *[1] * (x.rank - 2)]
        flat = program.let(f"{name}({source.name})", (x.shape[0], width))
        made.append(program.let(flat.name + spread, shape).name)
    texts = ("{x} * {0} + {1}", "{x} * (1 + {0}) + {1}", "(1 + {0}) * {x} + {1}", "{x} * torch.sigmoid({0}) + {1}")
    return program.let(rng.choice(texts).format(*made, x=x.name), x.shape)


def head(program: Program) -> Value:
    """Classes."""
    x, rng = program.value, program.rng
    if x.rank > 3:
        places = tuple(range(2, x.rank))
        text = rng.choice((f"{x.name}.mean(dim={places})", f"F.adaptive_avg_pool{x.rank - 2}d({x.name}, 1).flatten(1)"))
        program.let(text, x.shape[:2])
    elif x.rank == 3 and rng.random() < 0.7:
        text = rng.choice((f"{x.name}.mean(dim=1)", f"{x.name}[:, 0]", f"{x.name}[:, -1]", f"{x.name}.amax(dim=1)"))
        program.let(text, (x.shape[0], x.shape[2]))
    return linear(program, program.size("classes"))


def twins(program: Program) -> Value:
    """The same steps, with the same modules, on two inputs; then one of both."""
    x, rng = program.value, program.rng
    if x.name not in program.inputs:
        raise Unfit
    other = program.input(x.shape)
    program.go_to(x)
    first = unit(program)
    names = {x.name: other.name}
    start = next(k for k, (n, text) in enumerate(program.body) if x.name in text)
    for name, text in program.body[start:]:
        for old, new in names.items():
            text = _renamed(text, old, new)
        names[name] = program.let(text, next(v.shape for v in program.values if v.name == name)).name
    second = program.value
    if not same(second.shape[-1], as_dim(first.shape[-1])):
        raise Unfit
    texts = ("torch.abs({0} - {1})", "{0} * {1}", "{0} - {1}", "({0} - {1}) ** 2", "{0} + {1}")
    return program.let(rng.choice(texts).format(first.name, second.name), first.shape)


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w.]){old}\b", new, text)
