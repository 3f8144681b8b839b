"""Products of two values in the ways in which people spell them: einsum, vectors, distances, correlations; scores with
masks of fewer dimensions; turns by halves."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import Dim, as_dim, product
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps.pointwise import fraction, number, positive

_LETTERS = {2: "bd", 3: "bsd", 4: "bhsd"}
_LARGEST = 4096
_SUMS: dict[int, tuple[tuple[str, str], ...]] = {
    2: (("bd", "b"), ("bd", "bd"), ("d", "b"), ("de", "be"), ("ed", "be"), ("d", "bd")),
    3: (
        ("bsd", "bs"),
        ("d", "bs"),
        ("bd", "bs"),
        ("bs", "bd"),
        ("s", "bd"),
        ("de", "bse"),
        ("btd", "bst"),
        ("sd", "b"),
    ),
    4: (
        ("hd", "bhs"),
        ("hde", "bhse"),
        ("bhtd", "bhst"),
        ("bhsd", "bhs"),
        ("h", "bsd"),
        ("hg", "bgsd"),
        ("bhd", "bhs"),
        ("bhse", "bhde"),
        ("ed", "bhse"),
        ("s", "bhd"),
    ),
}
"""By rank: the letters of what a value meets, and of what is left."""


def einsums(program: Program) -> Value:
    """A sum over letters, of the value and another input or a parameter."""
    x, rng = program.value, program.rng
    if x.rank not in _SUMS:
        raise Unfit
    theirs, left = rng.choice(_SUMS[x.rank])
    own = _LETTERS[x.rank]
    dims: dict[str, Dim] = dict(zip(own, x.shape, strict=True))
    for letter in theirs:
        if letter not in dims:
            dims[letter] = program.size("seq" if letter == "t" else "hidden")
    summed = [dims[letter] for letter in own if letter not in left]
    if any(dim.full > _LARGEST for dim in summed) or product(tuple(summed)).full > 2**18:
        raise Unfit
    shape = [dims[letter] for letter in theirs]
    scale = " * ".join(dim.text for dim in summed)
    by_batch = "b" in theirs
    if by_batch or rng.random() < 0.5:
        other = program.input(shape).name
    else:
        listed = ", ".join(dim.text for dim in shape)
        root = f" / ({scale}) ** 0.5" if summed else ""
        other = program.hold(f"nn.Parameter(torch.randn({listed}){root})", "weight")
    renamed = str.maketrans("bhsdetg", rng.choice(("bhsdetg", "nhlcotg", "abcdefg", "ijklmno")))
    spelled = f"{own},{theirs}->{left}".translate(renamed)
    text = f'torch.einsum("{spelled}", {x.name}, {other})'
    return program.let(text, [dims[letter] for letter in left])


def vector(program: Program) -> Value:
    """The rows of a value times a vector each, or all the same."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3) or x.shape[-1].full > 2 * _LARGEST:
        raise Unfit
    width = x.shape[-1]
    if x.rank == 3 and rng.random() < 0.6:
        v = program.input((x.shape[0], width)).name
        texts: tuple[str, ...] = (
            "torch.bmm({x}, {v}.unsqueeze(-1)).squeeze(-1)",
            "torch.bmm({x}, {v}[:, :, None])[..., 0]",
            "torch.matmul({x}, {v}.unsqueeze(2)).squeeze(2)",
            "({x} * {v}[:, None, :]).sum(dim=-1)",
            "({x} * {v}.unsqueeze(1)).sum(-1)",
        )
    else:
        root = f"nn.Parameter(torch.randn({width.text}) / {width.text} ** 0.5)"
        v = program.hold(root, "weight") if rng.random() < 0.6 else program.input((width,)).name
        texts = ("{x} @ {v}", "torch.matmul({x}, {v})", "({x} * {v}).sum(dim=-1)")
        texts += ("torch.mv({x}, {v})",) * (x.rank == 2)
    return program.let(rng.choice(texts).format(x=x.name, v=v), x.shape[:-1])


def squared_distances(program: Program) -> Value:
    """The squared distances of all rows from those of another input, in pieces that broadcast."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3) or x.shape[-1].full > _LARGEST:
        raise Unfit
    many = program.size("rows" if x.rank == 2 else "seq")
    y = program.input((*x.shape[:-2], many, x.shape[-1]))
    square = rng.choice(("({v} * {v})", "{v}.pow(2)", "({v} ** 2)", "torch.square({v})"))
    rows, columns = (*x.shape[:-1], as_dim(1)), (*x.shape[:-2], as_dim(1), many)
    first = rng.choice((".sum(dim=-1, keepdim=True)", ".sum(-1).unsqueeze(-1)"))
    second = rng.choice((".sum(-1).unsqueeze(-2)", ".sum(dim=-1)[..., None, :]"))
    a = program.let(square.format(v=x.name) + first, rows)
    b = program.let(square.format(v=y.name) + second, columns)
    inner = f"{x.name} @ {y.name}.transpose(-2, -1)"
    shape = (*x.shape[:-1], many)
    if rng.random() < 0.5:
        inner = program.let(inner, shape).name
    made = program.let(f"{a.name} + {b.name} - 2.0 * ({inner})", shape)
    ends = (
        "torch.clamp({m}, min=0.0)",
        "{m}.clamp(min=0)",
        "F.relu({m})",
        "torch.exp(-{c} * {m})",
        "1.0 / (1.0 + F.relu({m}) / {c})",
        "torch.sqrt(torch.clamp({m}, min=1e-6))",
        "{m}",
    )
    text = rng.choice(ends)
    return made if text == "{m}" else program.let(text.format(m=made.name, c=positive(rng)), shape)


def gram(program: Program) -> Value:
    """The products of all columns; perhaps centred before, and scaled by their diagonal behind."""
    x, rng = program.value, program.rng
    if x.rank not in (2, 3) or x.shape[-1].full > 2048:
        raise Unfit
    if rng.random() < 0.6:
        x = program.let(f"{x.name} - {x.name}.mean(dim=-2, keepdim=True)", x.shape)
    wide = x.shape[-1]
    shape = (*x.shape[:-2], wide, wide)
    turned = ("{x}.T", "{x}.t()", "{x}.transpose(0, 1)") if x.rank == 2 else ("{x}.transpose(1, 2)", "{x}.mT")
    made = program.let(f"{rng.choice(turned).format(x=x.name)} @ {x.name} / {x.name}.shape[-2]", shape)
    if x.rank == 2 and rng.random() < 0.7:
        root = program.let(f"torch.rsqrt(torch.diagonal({made.name}) + 1e-3)", (wide,))
        text = rng.choice(("{m} * {r}[:, None] * {r}[None, :]", "{m} * {r}.unsqueeze(1) * {r}.unsqueeze(0)"))
        made = program.let(text.format(m=made.name, r=root.name), shape)
    if rng.random() < 0.5:
        q = fraction(rng)
        eye = program.let(f"torch.eye({made.name}.shape[-1])", (wide, wide))
        program.values.remove(eye)
        made = program.let(f"(1 - {q}) * {made.name} + {q} * {eye.name}", shape)
    return program.go_to(made)


def masked_scores(program: Program) -> Value:
    """Products of rows, a scale, what a mask of fewer dimensions leaves, softmax; perhaps of values, too."""
    x, rng = program.value, program.rng
    if x.rank not in (3, 4) or x.shape[-2].full > 1024:
        raise Unfit
    seq = x.shape[-2]
    y = program.input(x.shape).name if rng.random() < 0.7 else x.name
    shape = (*x.shape[:-1], seq)
    times = "torch.bmm({x}, {y}.transpose(1, 2))" if x.rank == 3 else "torch.matmul({x}, {y}.transpose(-1, -2))"
    made = program.let(times.format(x=x.name, y=y), shape)
    scale = rng.choice((f"/ math.sqrt({x.name}.shape[-1])", f"* {x.name}.size(-1) ** -0.5", "* 0.125", "/ 8.0"))
    made = program.let(f"{made.name} {scale}", shape)
    made = _behind_mask(program, made, x.shape[0])
    made = program.let(rng.choice(("F.softmax({m}, dim=-1)", "{m}.softmax(dim=-1)")).format(m=made.name), shape)
    return program.let(f"{made.name} @ {y}", x.shape) if rng.random() < 0.4 else made


def _behind_mask(program: Program, x: Value, batch: Dim) -> Value:
    """Scores with a mask: of places, of keys, a triangle, a window; added or filled in."""
    rng, seq = program.rng, x.shape[-1]
    low = rng.choice(('float("-inf")', "-1e9", "-1e4", "-10000.0"))
    ones = ", ".join(["None"] * (x.rank - 2))
    kind = rng.random()
    if kind < 0.25:
        return program.let(f"{x.name} + {program.input((seq, seq)).name}", x.shape)
    if kind < 0.55:
        mask = program.input((batch, seq), "mask").name
        filled = rng.choice((f"~{mask}[:, {ones}, :]", f"{mask}[:, {ones}, :] == 0"))
        return program.let(f"{x.name}.masked_fill({filled}, -1e4)", x.shape)
    if kind < 0.75:
        triangle = f"torch.tril(torch.ones({seq.text}, {seq.text})).bool()"
        held = program.hold(f"nn.Buffer({triangle})", "causal")
        cut = rng.choice(("", f"[: {x.name}.shape[-2], : {x.name}.shape[-1]]"))
        return program.let(f"{x.name}.masked_fill(~{held}{cut}, {low})", x.shape)
    place = program.let(f"torch.arange({x.name}.shape[-1])", (seq,), "int")
    apart = program.let(f"{place.name}[:, None] - {place.name}[None, :]", (seq, seq), "int")
    near = program.let(f"({apart.name} >= 0) & ({apart.name} < {rng.choice((3, 4, 5, 8))})", (seq, seq), "bool")
    return program.let(f"{x.name}.masked_fill(~{near.name}, {low})", x.shape)


def rotary(program: Program) -> Value:
    """Angles of places turn a value: halves change sides, one of them with its sign."""
    x, rng = program.value, program.rng
    if x.rank not in (3, 4) or x.shape[-1].full % 2 or x.shape[-1].small % 2:
        raise Unfit
    seq, half = x.shape[-2], x.shape[-1] // 2
    angles = f"torch.cat([torch.randn({seq.text}, {half.text})] * 2, dim=-1)"
    cos, sin = (program.hold(f"nn.Buffer({angles}.{f}())", f) for f in ("cos", "sin"))
    if rng.random() < 0.5:
        cos, sin = (f"{name}[: {x.name}.shape[-2]]" for name in (cos, sin))
    part = (*x.shape[:-1], half)
    if rng.random() < 0.6:
        whole = program.let(f"{x.name}.chunk(2, dim=-1)", part)
        program.values.remove(whole)
        a, b = f"{whole.name}[0]", f"{whole.name}[1]"
    else:
        middle = f"{x.name}.shape[-1] // 2"
        a, b = (program.let(f"{x.name}[..., {cut}]", part).name for cut in (f": {middle}", f"{middle} :"))
    turned = program.let(f"torch.cat([-{b}, {a}], dim=-1)", x.shape)
    return program.let(f"{x.name} * {cos} + {turned.name} * {sin}", x.shape)


def grouped_queries(program: Program) -> Value:
    """Attention of heads that share keys and values."""
    x, rng = program.value, program.rng
    if x.rank != 4 or x.shape[-2].full > 1024:
        raise Unfit
    fit = [n for n in (2, 2, 4) if x.shape[1].full % n == x.shape[1].small % n == 0]
    if not fit:
        raise Unfit
    n = rng.choice(fit)
    few = (x.shape[0], x.shape[1] // n, *x.shape[2:])
    names = []
    for _ in range(2):
        made = program.input(few)
        names.append(program.let(f"{made.name}.repeat_interleave({n}, dim=1)", x.shape).name)
    k, v = names
    shape = (*x.shape[:-1], x.shape[-2])
    made = program.let(f"{x.name} @ {k}.transpose(-2, -1) * {x.name}.shape[-1] ** -0.5", shape)
    if rng.random() < 0.5:
        made = _behind_mask(program, made, x.shape[0])
    made = program.let(f"torch.softmax({made.name}, dim=-1)", shape)
    return program.let(f"{made.name} @ {v}", x.shape)


def shared(program: Program) -> Value:
    """One parameter in two places of a formula."""
    x, rng = program.value, program.rng
    if not x.rank:
        raise Unfit
    shapes: list[tuple[Dim | int, ...]] = [x.shape[-1:], (1,)]
    if x.rank > 2:
        shapes += [(1, x.shape[1], *[1] * (x.rank - 2)), (x.shape[1], *[1] * (x.rank - 2))]
    p = program.parameter(rng.choice(shapes), 0.1)
    c, f = number(rng), rng.choice(("torch.tanh", "torch.sigmoid", "F.relu", "F.silu", "torch.sin"))
    first = program.let(rng.choice(("{x} * {p}", "{x} + {p}", "{x} - {p}")).format(x=x.name, p=p), x.shape)
    texts = (
        "{f}({m}) * {p}",
        "{f}({m}) + {p}",
        "{m} + {f}({x} * {p}) / ({p} + 1e-6)",
        "{p} * {f}({m}) + (1 - {p}) * {x}",
        "{f}({m}) + {c} * {p}",
        "torch.maximum({m}, {f}({x}) * {p})",
        "torch.where({m} > {p}, {m}, {c} * {m})",
        "torch.minimum({f}({m}), {p})",
    )
    return program.let(rng.choice(texts).format(x=x.name, m=first.name, p=p, f=f, c=c), x.shape)
