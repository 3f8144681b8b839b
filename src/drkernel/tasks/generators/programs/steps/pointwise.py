"""Steps on elements: activations, formulas by hand, numbers, parameters."""

from __future__ import annotations

import random

from drkernel.tasks.generators.graphs.dims import Dim
from drkernel.tasks.generators.programs.program import Program, Unfit, Value

_CALLS = """F.relu({x})|F.relu({x})|torch.relu({x})|F.gelu({x})|F.gelu({x})|F.gelu({x}, approximate="tanh")|F.silu({x})
F.silu({x})|F.mish({x})|F.softplus({x})|F.elu({x})|F.elu({x}, alpha={p})|F.celu({x}, alpha={p})|F.selu({x})
F.leaky_relu({x}, {q})|F.leaky_relu({x})|torch.sigmoid({x})|torch.sigmoid({x})|torch.tanh({x})|torch.tanh({x})
F.hardswish({x})|F.hardsigmoid({x})|F.relu6({x})|F.hardtanh({x})|F.hardtanh({x}, -{p}, {p})|F.softsign({x})
F.tanhshrink({x})|F.softshrink({x}, {q})|F.hardshrink({x}, {q})|F.logsigmoid({x})|F.threshold({x}, {q}, 0.0)
torch.abs({x})|torch.sin({x})|torch.cos({x})|torch.erf({x})|torch.square({x})|-{x}
torch.exp(-{x} * {x})|torch.exp(torch.clamp({x}, max={p}))|{x} ** 2|{x} ** 3|torch.log1p(torch.abs({x}))
torch.sqrt(torch.abs({x}) + {e})|torch.rsqrt({x} ** 2 + {e})|torch.log({x} * {x} + {e})|torch.expm1(torch.tanh({x}))
1.0 / (torch.abs({x}) + {p})|torch.reciprocal({x} ** 2 + {p})|torch.pow({x}, 2)"""
_FORMULAS = """{x} * torch.sigmoid({x})|{x} * torch.sigmoid({p} * {x})|{x} * torch.tanh(F.softplus({x}))
{x} * torch.tanh(torch.log1p(torch.exp({x})))|0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))
0.5 * {x} * (1 + torch.tanh(math.sqrt(2 / math.pi) * ({x} + 0.044715 * {x} ** 3)))|{x} / (1.0 + torch.abs({x}))
{p} * torch.tanh({x} / {p})|torch.sign({x}) * torch.sqrt(torch.abs({x}) + {e})|{x} * F.relu6({x} + 3) / 6
torch.where({x} > 0, {x}, {q} * {x})|torch.where({x} > {q}, {x}, {q})|torch.where({x} < 0, torch.exp({x}) - 1, {x})
{x} * ({x} > {q})|{x} * F.hardsigmoid({x})|F.relu({x}) ** 2|torch.square(F.relu({x}))|torch.clamp({x}, -{p}, {p})
torch.log(1 + torch.exp({x}))|{x} * F.relu({x})|torch.maximum({x}, {x} * {q})|torch.minimum({x}, {x} * {x})
F.relu({x}) - F.relu(-{x})|torch.sigmoid({x}) * (1 - torch.sigmoid({x}))|torch.exp(-torch.abs({x}))
torch.clamp({x}, min={q})|torch.clamp({x}, max={p})|F.relu({x} - {q}) + {q}|torch.tanh({x}) + {q} * {x}
torch.sin({p} * {x}) ** 2 + {x}|{x} + torch.sin({x}) ** 2 / {p}|torch.log(torch.clamp({x}, min={e}))"""
CALLS = [text for line in _CALLS.splitlines() for text in line.split("|")]
FORMULAS = [text for line in _FORMULAS.splitlines() for text in line.split("|")]
_NUMBERED = ("{x} * {c}", "{x} * {c}", "{c} * {x}", "{x} + {c}", "{x} - {c}", "{c} - {x}", "{x} / {c}", "{c} + {x}")
SMALL_NUMBERS = ("1e-3", "1e-4", "1e-5", "1e-6", "1e-7", "1e-8", "1e-9", "1e-12", "0.001", "0.01", "0.1")


def positive(rng: random.Random) -> str:
    """A number around one."""
    kinds = (
        rng.choice(("1.0", "2.0", "3.0", "4.0", "6.0", "8.0", "10.0", "0.5", "0.25", "1.5", "1.702", "2", "3", "4")),
        f"{rng.uniform(0.1, 9.9):.1f}",
        f"{rng.uniform(0.3, 3.0):.2f}",
        f"{rng.randrange(2, 60)}.0",
        str(rng.randrange(2, 12)),
    )
    return rng.choice(kinds)


def fraction(rng: random.Random) -> str:
    """A number below one."""
    kinds = (rng.choice(("0.1", "0.2", "0.01", "0.05", "0.25", "0.5", "0.3")), f"{rng.uniform(0.01, 0.99):.2f}")
    return rng.choice((*kinds, f"{rng.uniform(0.001, 0.9):.3f}"))


def number(rng: random.Random) -> str:
    """A number that scales or shifts."""
    found = rng.choice((positive, fraction))(rng)
    return f"-{found}" if rng.random() < 0.15 else found


def filled(program: Program, text: str, x: str) -> str:
    """A formula with a value and numbers."""
    rng = program.rng
    p, q, c = positive(rng), fraction(rng), number(rng)
    text = text.replace("** 2", f"** {rng.choice(('2', '2', '2.0'))}")
    return text.format(x=x, p=p, q=q, c=c, e=rng.choice(SMALL_NUMBERS))


def call(program: Program) -> Value:
    """A function of PyTorch."""
    x = program.value
    return program.let(filled(program, program.rng.choice(CALLS), x.name), x.shape)


def formula(program: Program) -> Value:
    """An activation or a like formula, by hand."""
    x = program.value
    return program.let(filled(program, program.rng.choice(FORMULAS), x.name), x.shape)


def activation(program: Program) -> Value:
    return program.rng.choice((call, call, call, formula))(program)


def with_number(program: Program) -> Value:
    x = program.value
    return program.let(filled(program, program.rng.choice(_NUMBERED), x.name), x.shape)


def with_parameter(program: Program) -> Value:
    """A parameter of any shape that broadcasts: a number, channels, features, places."""
    x, rng = program.value, program.rng
    shape = rng.choice(broadcasts(x))
    text = rng.choice(("{x} + {p}", "{x} * {p}", "{x} * {p}", "{x} - {p}", "{p} * {x}", "{p} + {x}", "{x} / {p}"))
    return program.let(text.format(x=x.name, p=program.parameter(shape, 0.1)), x.shape)


def snake(program: Program) -> Value:
    """A periodic activation with a parameter, which is read twice; or a slope below a threshold."""
    x, rng = program.value, program.rng
    p = program.parameter(rng.choice(broadcasts(x)[:5]), 0.1)
    texts = (
        "{x} + torch.sin({p} * {x}) ** 2 / {p}",
        "{x} + (1.0 / {p}) * torch.sin({x} * {p}) ** 2",
        "torch.where({x} > 0, {x}, {p} * {x})",
        "{x} * torch.sigmoid({p} * {x})",
        "F.relu({x}) + {p} * torch.clamp({x}, max=0)",
        "torch.tanh({p} * {x}) * {p}",
    )
    return program.let(rng.choice(texts).format(x=x.name, p=p), x.shape)


def broadcasts(x: Value) -> list[tuple[Dim | int, ...]]:
    """Shapes of parameters for a value."""
    if not x.rank:
        return [(1,), ()]
    found: list[tuple[Dim | int, ...]] = [(1,), (), x.shape[-1:], x.shape[-1:]]
    if x.rank > 2:
        channels: tuple[Dim | int, ...] = (x.shape[1], *[1] * (x.rank - 2))
        found += [channels, channels, (1, *channels), x.shape[-2:], (1, *x.shape[1:]), x.shape[1:], (x.shape[-2], 1)]
    return found


def mixture(program: Program) -> Value:
    """Two functions of one value, joined: a value by its gate, a weighted sum."""
    x, rng = program.value, program.rng
    parts = []
    for _ in range(2):
        program.go_to(x)
        parts.append(activation(program).name if rng.random() < 0.8 else x.name)
    if parts[0] == parts[1] == x.name:
        raise Unfit
    texts = (
        "{0} * {1}",
        "{0} * {1}",
        "{0} + {1}",
        "{0} - {1}",
        "torch.maximum({0}, {1})",
        "{0} + {c} * {1}",
        "{c} * {0} + {q} * {1}",
        "torch.lerp({0}, {1}, {q})",
        "torch.add({0}, {1}, alpha={c})",
    )
    text = rng.choice(texts).format(*parts, c=number(rng), q=fraction(rng))
    return program.let(text, x.shape)
