"""Statistics of dimensions that lie apart, with both moments in one call, by hand with parameters; ranks; formulas with
several cases."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import as_dim, count
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import layers, rows
from drkernel.tasks.generators.programs.steps.pointwise import SMALL_NUMBERS, filled, fraction, positive
from drkernel.tasks.generators.programs.steps.rows import reduced

_CASES = """torch.where({x} > {p}, {x}, torch.where({x} < -{p}, -{x}, {q} * {x}))
torch.where({x} < -{p}, torch.zeros_like({x}), torch.where({x} > {p}, {x}, ({x} + {p}) * {q}))
torch.where(torch.abs({x}) < {p}, 0.5 * {x} ** 2, {p} * (torch.abs({x}) - 0.5 * {p}))
torch.where({x} > 0, torch.where({x} > {p}, {p} * torch.ones_like({x}), {x}), {q} * {x})
torch.where({x} >= 0, 1 / (1 + torch.exp(-{x})), torch.exp({x}) / (1 + torch.exp({x})))
torch.where(({x} > -{p}) & ({x} < {p}), {x} ** 3, {x})
(({x} * {q} + {c}) * {x} - {p}) * {q} + {x}
{q} + {x} * ({c} + {x} * ({q} + {x} * 0.1))
torch.sqrt({x} * {x} + {p}) - {p}
torch.clamp({x}, -{p}, {p}) + {q} * ({x} - torch.clamp({x}, -{p}, {p}))
{x} / torch.sqrt(1 + {x} ** 2)
torch.sigmoid({x}) * torch.log(torch.sigmoid({x}) + {e}) + {q} * {x}"""


def cases(program: Program) -> Value:
    """A formula of several cases, or a polynomial."""
    x = program.value
    return program.let(filled(program, program.rng.choice(_CASES.splitlines()), x.name), x.shape)


def apart(program: Program) -> Value:
    """A statistic over dimensions of which others lie between, or over the first; and the value again."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    kinds = {2: ((0,), (0,)), 3: ((0, 2), (0,), (0, 1), (1, 2)), 4: ((1, 3), (1, 3), (0, 2, 3), (0, 2), (1, 2), (0,))}
    dims = rng.choice(kinds.get(x.rank, ((1, 3), (0, 2, 3, 4), (1, 4), (2, 4), (0,))))
    told = str(dims if len(dims) > 1 else dims[0])
    e, shape = rng.choice(SMALL_NUMBERS[:8]), reduced(x.shape, dims, True)
    kind = rng.random()
    if kind < 0.4:
        square = rng.choice(("{x}.pow(2).sum(dim={d}, keepdim=True)", "({x} * {x}).mean(dim={d}, keepdim=True)"))
        made = program.let(square.format(x=x.name, d=told), shape)
        root = rng.choice(("{x} / ({m}.sqrt() + {e})", "{x} / torch.sqrt({m} + {e})", "{x} * torch.rsqrt({m} + {e})"))
        return program.let(root.format(x=x.name, m=made.name, e=e), x.shape)
    if kind < 0.7:
        return _moments(program, x, told, shape)
    made = rows.statistic(program, x, dims, True)
    text = rng.choice(("{x} - {m}", "{x} * torch.sigmoid({m})", "{x} / ({m}.abs() + {c})", "{m} - {x}"))
    return program.let(text.format(x=x.name, m=made.name, c=positive(rng)), x.shape)


def moments(program: Program) -> Value:
    """Mean and variance of one call, or of two, and the value without the one and divided by the other."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    dims = rows.dims_of(rng, x.rank)
    told = str(dims if len(dims) > 1 else rng.choice((dims[0], dims[0] - x.rank)))
    return _moments(program, x, told, reduced(x.shape, dims, True))


def _moments(program: Program, x: Value, told: str, shape: rows.Sides) -> Value:
    if count(tuple(map(as_dim, shape)), small=True) == count(x.shape, small=True) or program.dtype != "float32":
        raise Unfit  # one element has no variance, and in 16 bits a small one is a matter of rounding
    rng, e = program.rng, program.rng.choice(("1e-5", "1e-6", "1e-3", "1e-8"))
    more = rng.choice((", unbiased=False", ", unbiased=False", ", correction=0", "", ", unbiased=True"))
    kind = rng.choice(("var", "var", "std"))
    if rng.random() < 0.5:
        both = program.let(f"torch.{kind}_mean({x.name}, dim={told}, keepdim=True{more})", shape)
        program.values.remove(both)
        spread, mean = f"{both.name}[0]", f"{both.name}[1]"
    else:
        mean = program.let(f"{x.name}.mean(dim={told}, keepdim=True)", shape).name
        spread = program.let(f"{x.name}.{kind}(dim={told}, keepdim=True{more})", shape).name
    texts = ("({x} - {m}) / torch.sqrt({s} + {e})", "({x} - {m}) * torch.rsqrt({s} + {e})")
    if kind == "std":
        texts = ("({x} - {m}) / ({s} + {e})", "({x} - {m}) / torch.clamp({s}, min={e})")
    made = program.let(rng.choice(texts).format(x=x.name, m=mean, s=spread, e=e), x.shape)
    return _scaled(program, made) if rng.random() < 0.5 else made


def _scaled(program: Program, x: Value) -> Value:
    """Scale and shift with parameters of the last dimension or of channels."""
    shape = x.shape[-1:]
    if x.rank > 2 and program.rng.random() < 0.5:
        ones = [1] * (x.rank - 2)
        scale, shift = (program.parameter((x.shape[1], *ones)) for _ in range(2))
    else:
        scale, shift = (program.parameter(shape) for _ in range(2))
    text = program.rng.choice(("{x} * {a} + {b}", "{a} * {x} + {b}", "({x} + {b}) * {a}"))
    return program.let(text.format(x=x.name, a=scale, b=shift), x.shape)


def ranked(program: Program) -> Value:
    """The largest of a row: their sum, their shares, what is not among them as zero."""
    x, rng = program.value, program.rng
    if x.rank < 2 or x.shape[-1].small < 5:
        raise Unfit
    if rng.random() < 0.5 and x.shape[-1].full > 256:
        x = layers.linear(program, program.size("classes", (rng.choice((8, 16, 32, 64)), 6)))
    if x.shape[-1].small < 5:
        raise Unfit
    if rng.random() < 0.5:
        x = program.let(f"F.softmax({x.name}, dim=-1)", x.shape)
    k = rng.choice((1, 2, 2, 3, 4))
    best = program.let(f"torch.topk({x.name}, {k}, dim=-1)", (*x.shape[:-1], k))
    program.values.remove(best)
    values, places = f"{best.name}[0]", f"{best.name}[1]"
    kind = rng.random()
    if kind < 0.3:
        return program.let(f"{values} / ({values}.abs().sum(dim=-1, keepdim=True) + 1e-6)", best.shape)
    if kind < 0.5:
        return program.let(f"F.softmax({values}, dim=-1)", best.shape)
    if kind < 0.75:
        shares = program.let(f"F.softmax({values}, dim=-1)", best.shape)
        texts = ("torch.zeros_like({x}).scatter(-1, {p}, {s})", "torch.zeros_like({x}).scatter_(-1, {p}, {s})")
        return program.let(rng.choice(texts).format(x=x.name, p=places, s=shares.name), x.shape)
    low = rng.choice(("torch.zeros_like({x})", "0.0", "-1e4"))
    text = f"torch.where({x.name} >= {values}[..., -1:], {x.name}, {low.format(x=x.name)})"
    return program.let(text, x.shape)


def quantised(program: Program) -> Value:
    """A scale for each row from its largest element, and back; between them a limit."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    d, top = rng.choice((x.rank - 1, x.rank - 1, 1)), rng.choice(("127", "127.0", "448.0", "7.0", "240.0"))
    shape = reduced(x.shape, (d,), True)
    largest = rng.choice(("{x}.abs().amax(dim={d}, keepdim=True)", "torch.amax(torch.abs({x}), dim={d}, keepdim=True)"))
    scale = program.let(f"{largest.format(x=x.name, d=d)} / {top}", shape)
    scale = program.let(f"torch.clamp({scale.name}, min=1e-8)", shape)
    low = fraction(rng)
    made = program.let(f"torch.clamp({x.name} / {scale.name}, -{top}, {low} * {top})", x.shape)
    return program.let(rng.choice((f"{made.name} * {scale.name}", f"{scale.name} * {made.name}")), x.shape)


def balanced(program: Program) -> Value:
    """Rows and columns divided by their sums in turn."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    made = program.let(rng.choice((f"torch.exp(torch.tanh({x.name}))", f"torch.sigmoid({x.name}) + 0.1")), x.shape)
    for _ in range(rng.choice((1, 2, 3))):
        for d in (-1, -2):
            made = program.let(f"{made.name} / {made.name}.sum(dim={d}, keepdim=True)", x.shape)
    return program.let(f"torch.log({made.name})", x.shape)
