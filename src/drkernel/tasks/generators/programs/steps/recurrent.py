"""Steps that repeat a formula: states over a few places, cells by gates, series of polynomials, descents."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import Dim, as_dim
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps.pointwise import fraction, positive

_LOOP = """\
def {name}(x, h{given}):
    made = []
    for t in range(x.shape[{d}]):
        h = {formula}
        made.append(h)
    return {result}
"""
_SERIES = """\
def {name}(x, number):
    terms = [{first}, x]
    for k in range(2, number):
        terms.append({formula})
    return terms
"""
_STATES = (
    "torch.tanh({x} + cell(h))",
    "torch.tanh({x} + cell(h))",
    "F.relu({x} + cell(h))",
    "h + {q} * (torch.tanh({x} + cell(h)) - h)",
    "torch.sigmoid(cell(h)) * h + {x}",
    "{q} * h + (1 - {q}) * {x}",
    "{q} * h + {x}",
    "torch.tanh({q} * h + {x})",
    "torch.maximum({q} * h, {x})",
)
_NEXT = (
    ("torch.ones_like(x)", "2 * x * terms[-1] - terms[-2]"),
    ("torch.ones_like(x)", "((2 * k - 1) * x * terms[-1] - (k - 1) * terms[-2]) / k"),
    ("torch.ones_like(x)", "x * terms[-1] - {q} * terms[-2]"),
    ("torch.zeros_like(x)", "x * terms[-1]"),
    ("torch.ones_like(x)", "{q} * terms[-1] + x * terms[-2]"),
)


def _function(program: Program, stem: str, text: str) -> str:
    name = f"{stem}{len(program.functions)}"
    program.functions[name] = text.replace("{name}", name, 1)
    return name


def states(program: Program) -> Value:
    """A state that goes through a few places, each of which changes it."""
    x, rng = program.value, program.rng
    if x.rank != 3 or x.shape[-1].full > 4096:
        raise Unfit
    n = rng.choice((3, 4, 4, 5, 6))
    if min(x.shape[1].full, x.shape[1].small) < n:
        raise Unfit
    first = rng.random() < 0.3
    few = program.let(f"{x.name}[:, :{n}]", (x.shape[0], n, x.shape[2]))
    width = x.shape[2]
    if rng.random() < 0.5 and width.full <= 2048:
        width = program.size("hidden")
        few = program.let(
            f"{program.hold(f'nn.Linear({x.shape[2].text}, {width.text})')}({few.name})", (x.shape[0], n, width)
        )
    if first:
        few = program.let(f"{few.name}.transpose(0, 1)", (n, x.shape[0], width))
    formula, d = rng.choice(_STATES), 0 if first else 1
    formula = formula.replace("{x}", "x[t]" if first else "x[:, t]").replace("{q}", fraction(rng))
    cell = program.hold(f"nn.Linear({width.text}, {width.text}, bias=False)", "cell") if "cell" in formula else ""
    state = (
        program.input((x.shape[0], width)).name
        if rng.random() < 0.5
        else program.let(f"torch.zeros_like({few.name}{'[0]' if first else '[:, 0]'})", (x.shape[0], width)).name
    )
    last = rng.random() < 0.4
    result = "made[-1]" if last else f"torch.stack(made, dim={d})"
    text = _LOOP.replace("{given}", ", cell" if cell else "").replace("{d}", str(d))
    text = text.replace("{formula}", formula).replace("{result}", result)
    name = _function(program, "run", text)
    made = (x.shape[0], width) if last else few.shape
    return program.let(f"{name}({few.name}, {state}{', ' + cell if cell else ''})", made)


def series(program: Program) -> Value:
    """Polynomials of a value, each from the two before it; side by side, in a sum, or met by a layer."""
    x, rng = program.value, program.rng
    if not x.rank or x.shape[-1].full > 4096:
        raise Unfit
    n = rng.choice((3, 4, 4, 5))
    first, formula = rng.choice(_NEXT)
    text = _SERIES.replace("{first}", first).replace("{formula}", formula.replace("{q}", fraction(rng)))
    name = _function(program, "terms", text)
    bounded = program.let(rng.choice((f"torch.tanh({x.name})", f"torch.sin({x.name})")), x.shape)
    terms = program.let(f"{name}({bounded.name}, {n})", x.shape)
    program.values.remove(terms)
    parts = [f"{terms.name}[{k}]" for k in range(n)]
    kind = rng.random()
    if kind < 0.4:
        return program.let(" + ".join(f"{fraction(rng)} * {part}" for part in parts), x.shape)
    if kind < 0.55:
        weights = program.hold(f"nn.Parameter(torch.randn({n}))", "weights")
        return program.let(f"({weights} * torch.stack({terms.name}, dim=-1)).sum(dim=-1)", x.shape)
    wide = n * x.shape[-1]
    made = program.let(f"torch.cat({terms.name}, dim=-1)", (*x.shape[:-1], wide))
    if rng.random() < 0.6:
        out = program.size("hidden")
        weight = program.hold(f"nn.Parameter(torch.randn({wide.text}, {out.text}) * 0.02)", "weight")
        return program.let(f"{made.name} @ {weight}", (*x.shape[:-1], out))
    return made


def cell(program: Program) -> Value:
    """One step of a recurrent cell, gate by gate."""
    x, rng = program.value, program.rng
    if x.rank != 2 or x.shape[1].full > 4096:
        raise Unfit
    hidden = program.size("hidden")
    shape: tuple[Dim, ...] = (x.shape[0], hidden)
    h, number = program.input(shape).name, rng.choice((2, 3, 3, 4))
    wide = (x.shape[0], number * hidden)
    a, b = (
        program.let(f"{program.hold(f'nn.Linear({w.text}, {(number * hidden).text})')}({v})", wide).name
        for v, w in ((x.name, x.shape[1]), (h, hidden))
    )
    if number == 3:
        parts = [program.let(f"{name}.chunk(3, dim=-1)", shape) for name in (a, b)]
        for part in parts:
            program.values.remove(part)
        i, g = (part.name for part in parts)
        reset = program.let(f"torch.sigmoid({i}[0] + {g}[0])", shape).name
        keep = program.let(f"torch.sigmoid({i}[1] + {g}[1])", shape).name
        new = program.let(f"torch.tanh({i}[2] + {reset} * {g}[2])", shape).name
        texts = ("(1 - {z}) * {n} + {z} * {h}", "{n} + {z} * ({h} - {n})")
        return program.let(rng.choice(texts).format(z=keep, n=new, h=h), shape)
    gates = program.let(f"({a} + {b}).chunk({number}, dim={rng.choice((1, -1))})", shape)
    program.values.remove(gates)
    g = gates.name
    if number == 2:
        return program.let(f"torch.sigmoid({g}[0]) * {h} + (1 - torch.sigmoid({g}[0])) * torch.tanh({g}[1])", shape)
    c = program.input(shape).name
    made = program.let(f"torch.sigmoid({g}[1]) * {c} + torch.sigmoid({g}[0]) * torch.tanh({g}[2])", shape)
    return program.let(f"torch.sigmoid({g}[3]) * torch.tanh({made.name})", shape)


def descent(program: Program) -> Value:
    """The same small change several times: diffusion, momentum, roots by Newton's steps, limits of maps."""
    x, rng = program.value, program.rng
    if x.rank < 2 or min(x.shape[-1].small, as_dim(x.shape[-1]).full) < 3:
        raise Unfit
    q, c = fraction(rng), positive(rng)
    texts = (
        "{m} + {q} * (torch.roll({m}, 1, dims=-1) + torch.roll({m}, -1, dims=-1) - 2.0 * {m})",
        "{m} - {q} * torch.tanh({c} * {m})",
        "{m} + {q} * ({x} - {m} ** 3)",
        "0.5 * ({m} + {x} ** 2 / (torch.abs({m}) + {c}))",
        "torch.sigmoid({c} * {m}) * {m} + {q} * {x}",
    )
    text, made = rng.choice(texts), x
    if "** 3" in text:
        x = made = program.let(f"torch.tanh({x.name})", x.shape)
        q = "0.1"
    for _ in range(rng.choice((2, 2, 3, 4))):
        made = program.let(text.format(m=made.name, x=x.name, q=q, c=c), x.shape)
    return made
