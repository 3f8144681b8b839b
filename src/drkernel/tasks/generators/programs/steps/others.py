"""Steps that answers leave to PyTorch, so that kernels lie between them: einsum, recurrent modules, indexing, scans,
sorts, and parameters that are transformed before use."""

from __future__ import annotations

from collections.abc import Callable

from drkernel.tasks.generators.graphs.dims import Dim, alike
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps.pointwise import broadcasts, positive

Made = tuple[str, list[Dim | int]]


def einsum(program: Program) -> Value:
    """A sum over letters: a product with a parameter or of the value with itself."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3, 4):
        raise Unfit
    letters = "bsd" if x.rank == 3 else "bhsd"[: x.rank] if x.rank == 4 else "bd"
    if rng.random() < 0.6 and x.shape[-1].full <= 4096:
        out = program.size("hidden")
        weight = program.hold(
            f"nn.Parameter(torch.randn({x.shape[-1].text}, {out.text}) / {x.shape[-1].text} ** 0.5)", "weight"
        )
        return program.let(f'torch.einsum("{letters},de->{letters[:-1]}e", {x.name}, {weight})', [*x.shape[:-1], out])
    if x.rank < 3 or x.shape[-2].full > 2048:
        raise Unfit
    head = letters[:-2]
    text = f'torch.einsum("{head}sd,{head}td->{head}st", {x.name}, {x.name})'
    made = program.let(text, [*x.shape[:-1], x.shape[-2]])
    scale = rng.choice((f"/ math.sqrt({x.name}.shape[-1])", f"* {x.name}.shape[-1] ** -0.5", "* 0.125"))
    return program.let(f"{made.name} {scale}", made.shape)


def of_parameter(program: Program) -> Value:
    """A value and what is computed of a parameter alone."""
    x, rng = program.value, program.rng
    p = program.parameter(rng.choice(broadcasts(x)), 0.1)
    texts = (
        "{x} * (1 + {p})",
        "{x} * torch.sigmoid({p})",
        "{x} * F.softplus({p})",
        "{x} * torch.exp({p})",
        "{x} + {p} * {p}",
        "{x} * {p}.abs()",
        "{x} - torch.tanh({p})",
        "{x} / ({p} ** 2 + {c})",
        "{x} * (1.0 - {p})",
    )
    return program.let(rng.choice(texts).format(x=x.name, p=p, c=positive(rng)), x.shape)


def turned(program: Program) -> Value:
    """Halves of the last dimension turned by angles of their places."""
    x, rng = program.value, program.rng
    if x.rank not in (3, 4) or x.shape[-1].full % 2 or x.shape[-1].small % 2:
        raise Unfit
    half = x.shape[-1] // 2
    names = [program.hold(f"nn.Buffer(torch.randn({x.shape[-2].text}, {half.text}).{f}())", f) for f in ("cos", "sin")]
    cos, sin = names
    first, second = f"{x.name}[..., : {x.name}.shape[-1] // 2]", f"{x.name}[..., {x.name}.shape[-1] // 2 :]"
    if rng.random() < 0.5:
        first, second = f"{x.name}.chunk(2, dim=-1)[0]", f"{x.name}.chunk(2, dim=-1)[1]"
    a, b = (program.let(text, (*x.shape[:-1], half)).name for text in (first, second))
    return program.let(f"torch.cat([{a} * {cos} - {b} * {sin}, {a} * {sin} + {b} * {cos}], dim=-1)", x.shape)


def whole(program: Program) -> Value:
    """A module that is told as it is."""
    x, rng = program.value, program.rng
    if x.rank != 3 or x.shape[-1].full > 1024 or x.shape[1].full > 1024:
        raise Unfit
    width = x.shape[-1].text
    if rng.random() < 0.5 or x.shape[-1].full % 4 or x.shape[-1].small % 4:
        hidden = program.size("hidden")
        kind = rng.choice(("GRU", "LSTM"))
        layer = program.hold(f"nn.{kind}({width}, {hidden.text}, batch_first=True)", "rnn")
        return program.let(f"{layer}({x.name})[0]", (*x.shape[:-1], hidden))
    heads = rng.choice((2, 4))
    layer = program.hold(f"nn.MultiheadAttention({width}, {heads}, batch_first=True)", "attention")
    made = program.let(f"{layer}({x.name}, {x.name}, {x.name}, need_weights=False)[0]", x.shape)
    return program.let(f"{x.name} + {made.name}", x.shape) if rng.random() < 0.6 else made


def opaque(program: Program) -> Value:
    """One call that no kernel computes."""
    x = program.value
    if x.rank < 2:
        raise Unfit
    last, name = x.shape[-1], x.name
    made: list[Made] = [
        (f"torch.cumprod(torch.tanh({name}), dim=-1)", [*x.shape]),
        (f"torch.cummax({name}, dim=-1)[0]", [*x.shape]),
        (f"torch.logcumsumexp({name}, dim=-1)", [*x.shape]),
        (f"torch.sort({name}, dim=-1)[0]", [*x.shape]),
        (f"torch.var_mean({name}, dim=-1)[1]", [*x.shape[:-1]]),
        (f"F.dropout({name}, 0.1, self.training) * 1.5", [*x.shape]),
        (f"torch.tril({name})", [*x.shape]),
        (f"torch.triu({name}, diagonal=1)", [*x.shape]),
        (f"torch.roll({name}, 1, dims=-1)", [*x.shape]),
    ]
    if last.small > 4:
        made.append((f"torch.topk({name}, 4, dim=-1)[0]", [*x.shape[:-1], 4]))
    if last.full % 2 == last.small % 2 == 0:
        made.append((f"F.glu({name}, dim=-1)", [*x.shape[:-1], last // 2]))
    if x.rank > 2:
        made += [(f"F.local_response_norm({name}, 5)", [*x.shape])] * 2
        made.append((f"F.adaptive_max_pool{x.rank - 2}d({name}, 1).flatten(1)", [*x.shape[:2]]))
    if x.rank == 4 and x.shape[2].small > 3 < x.shape[3].small:
        made.append((f"F.lp_pool2d({name}, 2, 2)", [*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2]))
        made.append(
            (f"F.unfold({name}, 2, stride=2)", [x.shape[0], 4 * x.shape[1], (x.shape[2] // 2) * (x.shape[3] // 2)])
        )
    text, shape = program.rng.choice(made)
    return program.let(text, shape)


def spread(program: Program) -> Value:
    """A statistic of each row, as large as the value again."""
    x, rng = program.value, program.rng
    if x.rank < 3:
        raise Unfit
    places = tuple(range(2, x.rank))
    made = program.let(f"{x.name}.mean(dim={places if len(places) > 1 else 2})", x.shape[:2])
    squash = rng.choice(("torch.sigmoid", "torch.tanh", "F.relu"))
    made = program.let(f"{squash}({made.name})", made.shape)
    text = f"{made.name}[:, :{', None' * len(places)}].expand_as({x.name})"
    made = program.let(text, x.shape)
    return program.let(rng.choice(("{x} * {m}", "{m} * {x}", "{x} + {m}")).format(x=x.name, m=made.name), x.shape)


def added(program: Program) -> Value:
    """A product and a sum in one call."""
    x = program.value
    if x.rank != 2 or x.shape[-1].full > 8192:
        raise Unfit
    out = program.size("hidden")
    weight = program.hold(
        f"nn.Parameter(torch.randn({x.shape[-1].text}, {out.text}) / {x.shape[-1].text} ** 0.5)", "weight"
    )
    bias = program.parameter((out,))
    return program.let(f"torch.addmm({bias}, {x.name}, {weight})", (x.shape[0], out))


def mixture_of(program: Program) -> Value:
    """Several layers of one value, weighted by softmax of another."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3) or x.shape[-1].full > 4096:
        raise Unfit
    number, out = rng.choice((2, 3, 4)), program.size("hidden")
    gate = program.hold(f"nn.Linear({x.shape[-1].text}, {number})", "gate")
    weights = program.let(f"F.softmax({gate}({x.name}), dim=-1)", (*x.shape[:-1], number))
    layers = [program.hold(f"nn.Linear({x.shape[-1].text}, {out.text})", "expert") for _ in range(number)]
    if rng.random() < 0.5:
        listed = ", ".join(f"F.gelu({layer}({x.name}))" for layer in layers)
        made = program.let(f"torch.stack([{listed}], dim=-2)", (*x.shape[:-1], number, out))
        text = f"({weights.name}.unsqueeze(-1) * {made.name}).sum(dim=-2)"
    else:
        text = " + ".join(f"{weights.name}[..., {k}:{k + 1}] * {layer}({x.name})" for k, layer in enumerate(layers))
    made = program.let(text, (*x.shape[:-1], out))
    return program.let(f"{x.name} + {made.name}", x.shape) if alike(made.shape, x.shape) else made


OTHERS: tuple[Callable[[Program], Value], ...] = (
    *[of_parameter] * 3,
    *[opaque] * 3,
    *(einsum, einsum, turned, whole, spread, added, mixture_of),
)
