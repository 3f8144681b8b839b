"""Steps with further inputs, masks, attention written out, products of two values, losses."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import Dim, alike
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import layers, rows
from drkernel.tasks.generators.programs.steps.pointwise import number, positive

_SIGNS = (
    "{x} + {y}",
    "{x} + {y}",
    "{x} * {y}",
    "{x} * {y}",
    "{x} - {y}",
    "{y} - {x}",
    "{y} + {x}",
    "{y} * {x}",
    "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})",
    "{x} + {c} * {y}",
    "{x} * {c} + {y}",
    "torch.lerp({x}, {y}, 0.3)",
    "{x} * torch.sigmoid({y})",
    "torch.tanh({y}) * {x}",
    "({x} + {y}) * {c}",
    "{x} / (torch.abs({y}) + {p})",
    "torch.addcmul({x}, {x}, {y}, value={c})",
    "({x} - {y}) ** 2",
)


def with_input(program: Program) -> Value:
    """Another input meets the value: of the same shape, or with ones."""
    x, rng = program.value, program.rng
    shapes: list[tuple[Dim | int, ...]] = [x.shape, x.shape, x.shape]
    if x.rank > 1:
        shapes += [(*x.shape[:-1], 1), x.shape[-1:], (x.shape[0], *[1] * (x.rank - 1))]
    if x.rank > 2:
        shapes += [(x.shape[1], *[1] * (x.rank - 2)), x.shape[1:], (x.shape[0], 1, *x.shape[2:])]
        shapes += [(*x.shape[:2], *[1] * (x.rank - 2))]
    other = program.input(rng.choice(shapes))
    return _met(program, x, other)


def with_earlier(program: Program) -> Value:
    """A value of the same shape that was made before, or an input, meets it."""
    x, rng = program.value, program.rng
    if not (others := program.alike(x)):
        raise Unfit
    return _met(program, x, rng.choice(others))


def _met(program: Program, x: Value, y: Value) -> Value:
    text = program.rng.choice(_SIGNS).format(x=x.name, y=y.name, c=number(program.rng), p=positive(program.rng))
    return program.let(text.replace("+ -", "- "), x.shape)


def masked(program: Program) -> Value:
    """What a mask leaves: one that is given, a triangle, a comparison."""
    x, rng = program.value, program.rng
    kind, low = rng.random(), rng.choice(('float("-inf")', "-1e9", "-1e9", "-1e4", "-10000.0", "-30000.0"))
    softmax = rng.random() < 0.6 and x.rank > 1
    if kind < 0.3 and x.rank > 1 and alike(x.shape[-1:], x.shape[-2:-1]):
        mask = f"torch.tril(torch.ones({x.shape[-1].text}, {x.shape[-1].text})) == 0"
        if rng.random() < 0.6:
            name = program.hold(f"nn.Buffer({mask})", "mask")
            made = program.let(f"{x.name}.masked_fill({name}, {low})", x.shape)
        else:
            place = program.let(f"torch.arange({x.name}.shape[-1])", x.shape[-1:], "int")
            made = program.let(f"{x.name}.masked_fill({place.name}[None, :] > {place.name}[:, None], {low})", x.shape)
        return _weights(program, made)
    if kind < 0.6:
        shapes: list[tuple[Dim | int, ...]] = [x.shape, x.shape]
        if x.rank > 2:
            shapes += [(x.shape[0], *[1] * (x.rank - 2), x.shape[-1]), x.shape[-2:]]
        mask = program.input(rng.choice(shapes), "mask").name
    else:
        mask = f"({x.name} {rng.choice(('<', '>', '<=', '>='))} {number(rng)})"
        softmax = False
    if softmax:
        made = program.let(
            rng.choice((f"{x.name}.masked_fill(~{mask}, {low})", f"torch.where({mask}, {x.name}, {low})")), x.shape
        )
        return _weights(program, made)
    texts = (
        "{x} * {m}",
        "{x}.masked_fill({m}, 0.0)",
        "torch.where({m}, {x}, {c} * {x})",
        "torch.where({m}, {x}, {c})",
        "{x} * {m}.float()",
        "torch.where({m}, {x}, torch.zeros_like({x}))",
    )
    return program.let(rng.choice(texts).format(x=x.name, m=mask, c=number(rng)), x.shape)


def _weights(program: Program, x: Value) -> Value:
    return program.let(f"F.softmax({x.name}, dim=-1)", x.shape)


def scores(program: Program) -> Value:
    """The products of all rows with those of another input, or of themselves."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3, 4):
        raise Unfit
    if rng.random() < 0.4 and x.shape[-2].full <= 2048:
        y, others = x, x.shape[-2]
    else:
        others = program.size("seq")
        y = program.input((*x.shape[:-2], others, x.shape[-1]))
    width = f"{x.name}.shape[-1]"
    scale = rng.choice(
        (
            f" / math.sqrt({width})",
            f" / {width} ** 0.5",
            f" * {width} ** -0.5",
            " * 0.125",
            " / 8.0",
            f" / {positive(rng)}",
        )
    )
    made = program.let(f"({x.name} @ {y.name}.transpose(-2, -1)){scale}", (*x.shape[:-1], others))
    kind = rng.random()
    if kind < 0.25:
        made = _scores_biased(program)
    elif kind < 0.4:
        made = masked(program)
    elif kind < 0.5 and alike(made.shape[-1:], made.shape[-2:-1]):
        made = _scores_changed(program)
    return _weights(program, made) if rng.random() < 0.4 else made


def _bias(program: Program, x: Value) -> tuple[Dim | int, ...]:
    """A shape of what is added to scores."""
    shapes: list[tuple[Dim | int, ...]] = [x.shape[-2:], x.shape[-1:]]
    if x.rank == 4:
        shapes += [(1, *x.shape[1:]), x.shape[1:], (x.shape[1], 1, 1)]
    return program.rng.choice(shapes)


def attention(program: Program) -> Value:
    """Attention of several heads, written out or by PyTorch's function."""
    x, rng = program.value, program.rng
    if x.rank != 3:
        raise Unfit
    fit = [h for h in (2, 4, 8) if x.shape[-1].full % h == x.shape[-1].small % h == 0 and x.shape[-1].small > h]
    if not fit or x.shape[1].full > 2048:
        raise Unfit
    heads = rng.choice(fit)
    batch, seq, width = x.shape
    told, parts = program.number(heads), []
    for _ in range(3):
        made = program.let(f"{program.hold(f'nn.Linear({width.text}, {width.text})', 'proj')}({x.name})", x.shape)
        view = f"{made.name}.view({x.name}.shape[0], {x.name}.shape[1], {told}, -1).transpose(1, 2)"
        parts.append(program.let(view, (batch, heads, seq, width // heads)))
    q, k, v = parts
    if rng.random() < 0.3:
        made = program.let(f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name})", v.shape)
    else:
        scale = rng.choice(
            (f"/ math.sqrt({q.name}.shape[-1])", f"* {q.name}.shape[-1] ** -0.5", f"/ {q.name}.shape[-1] ** 0.5")
        )
        made = program.let(f"{q.name} @ {k.name}.transpose(-2, -1) {scale}", (batch, heads, seq, seq))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            made = rng.choice((_scores_changed, _scores_biased))(program)
        made = program.let(f"F.softmax({made.name}, dim=-1)", made.shape)
        made = program.let(f"{made.name} @ {v.name}", v.shape)
    made = program.let(f"{made.name}.transpose(1, 2).reshape({x.name}.shape)", x.shape)
    made = program.let(f"{program.hold(f'nn.Linear({width.text}, {width.text})', 'proj')}({made.name})", x.shape)
    return made


def encoder(program: Program) -> Value:
    """Attention and a wide layer, each with a norm before or behind, and with the value before them."""
    x, rng = program.value, program.rng
    first = rng.random() < 0.6
    for part in (attention, layers.feed_forward):
        before = program.value
        if first:
            rows.norm(program)
        made = part(program)
        made = program.let(rng.choice(("{x} + {m}", "{m} + {x}")).format(x=before.name, m=made.name), x.shape)
        if not first:
            rows.norm(program)
    return program.value


def _scores_biased(program: Program) -> Value:
    x = program.value
    return program.let(f"{x.name} + {program.parameter(_bias(program, x))}", x.shape)


def _scores_changed(program: Program) -> Value:
    """A cap, or a triangle: of the module or made in place, filled in or added."""
    x, rng = program.value, program.rng
    if rng.random() < 0.3:
        c = positive(rng)
        return program.let(f"{c} * torch.tanh({x.name} / {c})", x.shape)
    low = rng.choice(('float("-inf")', "-1e9", "-1e4"))
    if rng.random() < 0.4:
        whole = f"torch.full(({x.name}.shape[-2], {x.name}.shape[-1]), {low}, dtype={x.name}.dtype)"
        mask = program.let(f"torch.triu({whole}, diagonal=1)", x.shape[-2:])
        return program.let(f"{x.name} + {mask.name}", x.shape)
    if rng.random() < 0.4:
        whole = f"torch.full(({x.shape[-2].text}, {x.shape[-1].text}), {low})"
        return program.let(f"{x.name} + {program.hold(f'nn.Buffer(torch.triu({whole}, 1))', 'mask')}", x.shape)
    triangle = f"torch.triu(torch.ones({x.shape[-2].text}, {x.shape[-1].text}), diagonal=1).bool()"
    return program.let(f"{x.name}.masked_fill({program.hold(f'nn.Buffer({triangle})', 'mask')}, {low})", x.shape)


def distances(program: Program) -> Value:
    """The distances of all rows from those of a parameter or another input."""
    x, rng = program.value, program.rng
    if x.rank != 2:
        raise Unfit
    centers = program.size("hidden")
    if rng.random() < 0.5:
        y, shape = program.input((centers, x.shape[1])).name, (x.shape[0], centers)
    else:
        y, shape = program.parameter((centers, x.shape[1])), (x.shape[0], centers)
    a = program.let(f"({x.name} * {x.name}).sum(dim=1, keepdim=True)", (x.shape[0], 1))
    b = program.let(f"({y} ** 2).sum(dim=1)", (centers,))
    made = program.let(f"{a.name} + {b.name} - 2.0 * {x.name} @ {y}.t()", shape)
    if rng.random() < 0.6:
        made = program.let(f"torch.clamp({made.name}, min=0.0)", shape)
    if rng.random() < 0.5:
        text = rng.choice(("torch.exp(-{c} * {m})", "F.softmax(-{m} / {c}, dim=1)", "torch.sqrt({m} + {c})", "-{m}"))
        made = program.let(text.format(m=made.name, c=positive(rng)), shape)
    return made


_LOSSES = (
    "F.mse_loss({x}, {y})",
    "F.l1_loss({x}, {y})",
    "F.smooth_l1_loss({x}, {y})",
    "(({x} - {y}) ** 2).mean()",
    "torch.abs({x} - {y}).mean()",
    "(({x} - {y}) ** 2).sum(dim=-1).mean()",
    "torch.clamp({c} - {x} * {y}, min=0).mean()",
    "F.cosine_similarity({x}, {y}, dim=-1)",
    "1 - F.cosine_similarity({x}, {y}, dim=-1)",
    "({x} * {y}).sum(dim=-1)",
    "(({x} - {y}) ** 2).sum(dim=-1)",
    "torch.log(torch.cosh({x} - {y})).mean()",
    "torch.sqrt((({x} - {y}) ** 2).sum(dim=-1) + 1e-6)",
    "(F.softmax({y}, dim=-1) * (F.log_softmax({y}, dim=-1) - F.log_softmax({x}, dim=-1))).sum(dim=-1).mean()",
    "-(F.softmax({y} / {c}, dim=-1) * F.log_softmax({x} / {c}, dim=-1)).sum(dim=-1)",
    "torch.clamp(({x} - {y}).pow(2).sum(-1) - ({x} - {z}).pow(2).sum(-1) + {c}, min=0.0)",
    "torch.clamp(({x} - {y}).norm(dim=-1) - ({x} - {z}).norm(dim=-1) + {c}, min=0.0).mean()",
)


def loss(program: Program) -> Value:
    """A number, or one a row, of the value and another input."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    text = rng.choice(_LOSSES)
    others = program.alike(x)
    y = rng.choice(others) if others and rng.random() < 0.4 else program.input(x.shape)
    z = program.input(x.shape).name if "{z}" in text else ""
    shape = () if ".mean()" in text or "_loss" in text else x.shape[:-1]
    return program.let(text.format(x=x.name, y=y.name, z=z, c=positive(rng)), shape)
