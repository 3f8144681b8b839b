"""Steps that move elements: parts, halves, axes, places, copies."""

from __future__ import annotations

import random

from drkernel.tasks.generators.graphs.dims import Dim, alike, as_dim, product
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import layers, rows
from drkernel.tasks.generators.programs.steps.pointwise import activation


def axes(program: Program) -> Value:
    """Two axes change places, or all do."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    a, b = rng.sample(range(x.rank), 2)
    order = list(range(x.rank))
    order[a], order[b] = b, a
    text = f"{x.name}.transpose({a}, {b})"
    if x.rank > 2 and rng.random() < 0.5:
        order = [0, *range(2, x.rank), 1] if rng.random() < 0.7 else rng.sample(order, x.rank)
        text = f"{x.name}.permute({', '.join(map(str, order))})"
    return program.let(text + ".contiguous()" * (rng.random() < 0.3), [x.shape[d] for d in order])


def there_and_back(program: Program) -> Value:
    """Channels last, steps of the last dimension, channels first."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    moved = (
        f"{x.name}.permute(0, {', '.join(map(str, range(2, x.rank)))}, 1)"
        if x.rank > 3
        else f"{x.name}.transpose(1, 2)"
    )
    program.let(moved, [x.shape[0], *x.shape[2:], x.shape[1]])
    for _ in range(rng.choice((1, 2, 2, 3))):
        rng.choice((rows.norm, layers.linear, activation, layers.feed_forward, layers.linear))(program)
    y = program.value
    if y.rank != x.rank:
        raise Unfit
    moved = f"{y.name}.permute(0, {y.rank - 1}, {', '.join(map(str, range(1, y.rank - 1)))})"
    moved = f"{y.name}.transpose(1, 2)" if y.rank == 3 else moved
    made = program.let(moved, [y.shape[0], y.shape[-1], *y.shape[1:-1]])
    return program.let(f"{x.name} + {made.name}", x.shape) if alike(made.shape, x.shape) else made


def split(program: Program) -> Value:
    """One dimension as two, or two as one."""
    x, rng = program.value, program.rng
    if not x.rank:
        raise Unfit
    if rng.random() < 0.4 and x.rank > 2:
        d = rng.choice(range(1, x.rank - 1))
        joined = (*x.shape[:d], product(x.shape[d : d + 2]), *x.shape[d + 2 :])
        whole = x.rank == d + 2 and rng.random() < 0.5
        return program.let(f"{x.name}.flatten({d})" if whole else f"{x.name}.flatten({d}, {d + 1})", joined)
    d = rng.choice([x.rank - 1, min(1, x.rank - 1)])
    fit = [
        k for k in (2, 2, 3, 4, 4, 8, 16) if x.shape[d].full % k == x.shape[d].small % k == 0 and x.shape[d].small > k
    ]
    if not fit or x.rank > 4:
        raise Unfit
    k = rng.choice(fit)
    inner: list[Dim | int] = [x.shape[d] // k, k] if rng.random() < 0.5 else [k, x.shape[d] // k]
    shape = [*x.shape[:d], *inner, *x.shape[d + 1 :]]
    told = program.number(k)
    sizes = ", ".join(told if part == k else "-1" for part in inner)
    text = f"{x.name}.unflatten({d}, ({sizes}))"
    if rng.random() < 0.6:
        before = "".join(f"{x.name}.shape[{place}], " for place in range(d))
        after = "".join(f", {x.name}.shape[{place}]" for place in range(d + 1, x.rank))
        text = f"{x.name}.{rng.choice(('view', 'reshape'))}({before}{sizes}{after})"
    return program.let(text, shape)


def maxout(program: Program) -> Value:
    """Parts of a dimension become one: their maximum, mean or sum."""
    x, rng = program.value, program.rng
    made = split(program)
    if made.rank != x.rank + 1:
        raise Unfit
    d = rng.choice([made.rank - 1, min(2, made.rank - 1)])
    shape = [dim for place, dim in enumerate(made.shape) if place != d]
    name = rng.choice(("amax", "mean", "sum", "amin", "logsumexp", "norm"))
    return program.let(f"{made.name}.{name}(dim={d})", shape)


def halves(program: Program) -> Value:
    """Parts of a dimension that meet again: one gates another, or both are joined in turn."""
    x, rng = program.value, program.rng
    number = rng.choice((2, 2, 2, 2, 3, 4))
    fit = [d for d in range(min(1, x.rank), x.rank) if x.shape[d].full % number == x.shape[d].small % number == 0]
    if not fit:
        raise Unfit
    d = rng.choice(fit)
    part = x.shape[d] // number
    shape = [*x.shape[:d], part, *x.shape[d + 1 :]]
    told = rng.choice((str(d), str(d - x.rank)))
    whole = program.let(f"{x.name}.chunk({number}, dim={told})", shape)
    names = [f"{whole.name}[{k}]" for k in range(number)]
    program.values.remove(whole)
    squash = rng.choice(("torch.sigmoid", "F.silu", "F.gelu", "torch.tanh", "F.relu", "F.mish"))
    first, second = rng.sample(names, 2)
    texts = ["{a} * {s}({b})", "{s}({a}) * {b}", "{a} * {b}", "{a} + {s}({b})", "{s}({a}) + {b}", "{a} - {b}"]
    made = program.let(rng.choice(texts).format(a=first, b=second, s=squash), shape)
    for name in [name for name in names if name not in (first, second)]:
        made = program.let(
            rng.choice(("{m} * {n}", "{m} + {n}", "{m} + {s}({n})")).format(m=made.name, n=name, s=squash), shape
        )
    if number == 2 and rng.random() < 0.25:
        text = f"torch.cat([{second}, {made.name}], dim={told})"
        made = program.let(text, x.shape)
    return made


def joined(program: Program) -> Value:
    """Another value of the same shape beside it, or in a new dimension."""
    x, rng = program.value, program.rng
    if not (others := program.alike(x)) or not x.rank:
        raise Unfit
    other, d = rng.choice(others), rng.choice([min(1, x.rank - 1), x.rank - 1])
    if rng.random() < 0.3 and x.rank < 5:
        return program.let(f"torch.stack([{x.name}, {other.name}], dim={d})", [*x.shape[:d], 2, *x.shape[d:]])
    shape = list(x.shape)
    shape[d] = 2 * shape[d]
    return program.let(f"torch.cat([{other.name}, {x.name}], dim={d})", shape)


def copied(program: Program) -> Value:
    """Larger: by repetition, a frame of zeros, or finer places."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    kind = rng.random()
    if kind < 0.35 and x.rank == 4:
        mode = rng.choice(('"nearest"', '"nearest"', '"bilinear", align_corners=False'))
        sides = [2 * side for side in x.shape[2:]]
        return program.let(f"F.interpolate({x.name}, scale_factor=2, mode={mode})", [*x.shape[:2], *sides])
    if kind < 0.6:
        left, right = rng.randrange(0, 3), rng.randrange(1, 3)
        mode = rng.choice(("", "", f", value={rng.choice(('1.0', '-1.0'))}"))
        return program.let(f"F.pad({x.name}, ({left}, {right}){mode})", [*x.shape[:-1], x.shape[-1] + (left + right)])
    if kind < 0.8:
        shape = list(x.shape)
        shape[1] = 2 * shape[1]
        return program.let(f"{x.name}.repeat_interleave(2, dim=1)", shape)
    d = rng.choice(range(1, x.rank))
    return program.let(rng.choice((f"torch.roll({x.name}, 1, dims={d})", f"{x.name}.flip({d})")), x.shape)


def cut(program: Program) -> Value:
    """A part of the places, or one of them."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    last = x.shape[-1]
    texts: list[tuple[str, list[Dim | int]]] = [
        (f"{x.name}[..., 1:]", [*x.shape[:-1], last - 1]),
        (f"{x.name}[..., :-1]", [*x.shape[:-1], last - 1]),
    ]
    if x.rank > 2:
        texts += [(f"{x.name}[:, 0]", [x.shape[0], *x.shape[2:]]), (f"{x.name}[:, -1]", [x.shape[0], *x.shape[2:]])]
        texts += [(f"{x.name}[:, 1:]", [x.shape[0], x.shape[1] - 1, *x.shape[2:]])]
        texts += [(f"{x.name}[:, 1:] - {x.name}[:, :-1]", [x.shape[0], x.shape[1] - 1, *x.shape[2:]])]
    if last.full % 2 == last.small % 2 == 0:
        texts += [(f"{x.name}[..., ::2]", [*x.shape[:-1], last // 2])]
    text, shape = rng.choice(texts)
    return program.let(text, shape)


def shuffle(program: Program) -> Value:
    """Channels to places, places to channels."""
    x, rng = program.value, program.rng
    if x.rank != 4:
        raise Unfit
    n, c, h, w = x.shape
    if c.full % 4 == c.small % 4 == 0 and rng.random() < 0.5:
        return program.let(f"F.pixel_shuffle({x.name}, 2)", (n, c // 4, 2 * h, 2 * w))
    if all(side.full % 2 == side.small % 2 == 0 for side in (h, w)):
        return program.let(f"F.pixel_unshuffle({x.name}, 2)", (n, 4 * c, h // 2, w // 2))
    raise Unfit


def patches(program: Program) -> Value:
    """An image as tokens: a convolution in steps of its size, places flat, perhaps with what tells the place."""
    x, rng = program.value, program.rng
    fit = [k for k in (2, 4, 8) if all(side.full % k == side.small % k == 0 for side in x.shape[2:])]
    if x.rank != 4 or not fit:
        raise Unfit
    k, width = rng.choice(fit), program.size("hidden")
    conv = program.hold(f"nn.Conv2d({x.shape[1].text}, {width.text}, {k}, stride={k})", "patches")
    sides = [side // k for side in x.shape[2:]]
    made = program.let(f"{conv}({x.name})", (x.shape[0], width, *sides))
    seq = product(tuple(map(as_dim, sides)))
    made = program.let(f"{made.name}.flatten(2).transpose(1, 2)", (x.shape[0], seq, width))
    if rng.random() < 0.4:
        token = program.hold(f"nn.Parameter(torch.randn(1, 1, {width.text}))", "token")
        text = f"torch.cat([{token}.expand({made.name}.shape[0], -1, -1), {made.name}], dim=1)"
        made = program.let(text, (x.shape[0], seq + 1, width))
    if rng.random() < 0.6:
        made = program.let(f"{made.name} + {program.parameter((1, *made.shape[1:]))}", made.shape)
    return made


def unit_axis(program: Program) -> Value:
    """A dimension of one comes or goes."""
    x, rng = program.value, program.rng
    ones = [d for d, dim in enumerate(x.shape) if dim.full == dim.small == 1]
    if ones and rng.random() < 0.7:
        d = rng.choice(ones)
        return program.let(f"{x.name}.squeeze({d})", [*x.shape[:d], *x.shape[d + 1 :]])
    d = random.Random(rng.random()).choice(range(x.rank + 1))
    if x.rank > 4:
        raise Unfit
    return program.let(f"{x.name}.unsqueeze({d})", [*x.shape[:d], 1, *x.shape[d:]])
