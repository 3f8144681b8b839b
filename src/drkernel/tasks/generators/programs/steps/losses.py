"""Losses: of logits and targets, of classes, of distributions; by PyTorch's functions or written out."""

from __future__ import annotations

from drkernel.tasks.generators.graphs.dims import product
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import layers
from drkernel.tasks.generators.programs.steps.pointwise import fraction, positive

_ENDS = (
    "{m}.mean()",
    "torch.mean({m})",
    "{m}.mean()",
    "{m}.sum(dim=-1)",
    "{m}.mean(dim=-1)",
    "{m}.sum(-1).mean()",
    "{m}",
)
_OF_CLASSES = (
    "F.cross_entropy({x}, {y})",
    "F.cross_entropy({x}, {y}, label_smoothing={q})",
    "F.cross_entropy({x}, {y}, label_smoothing={q})",
    'F.cross_entropy({x}, {y}, reduction="none")',
    'F.cross_entropy({x} / {c}, {y}, reduction="none", label_smoothing={q})',
    "F.nll_loss(F.log_softmax({x}, dim=-1), {y})",
    "-F.log_softmax({x}, dim=-1).gather(1, {y}[:, None]).squeeze(1)",
    "(torch.logsumexp({x}, dim=1) - {x}.gather(1, {y}.unsqueeze(1))[:, 0])",
    "(torch.logsumexp({x}, dim=1) - {x}.gather(1, {y}.unsqueeze(1))[:, 0]).mean()",
    "F.multi_margin_loss({x}, {y}, margin={c})",
)
_OF_PAIRS = (
    'F.mse_loss({x}, {y}, reduction="none")',
    'F.l1_loss({x}, {y}, reduction="none")',
    'F.smooth_l1_loss({x}, {y}, beta={c}, reduction="none")',
    'F.huber_loss({x}, {y}, delta={c}, reduction="none")',
    "torch.where(torch.abs({x} - {y}) < {c}, 0.5 * ({x} - {y}) ** 2, {c} * (torch.abs({x} - {y}) - 0.5 * {c}))",
    "torch.sqrt(({x} - {y}) ** 2 + {c})",
    "torch.maximum({q} * ({y} - {x}), ({q} - 1) * ({y} - {x}))",
    "torch.log(torch.cosh(torch.clamp({x} - {y}, -{c}, {c})))",
    "F.softplus(-{x} * {y})",
    "torch.exp({x}.clamp(max=2.0)) - {y} * {x}",
    "0.5 * (({x} - {y}) ** 2 / ({c} + {y} ** 2) + torch.log({c} + {y} ** 2))",
)
_OF_DISTRIBUTIONS = (
    'F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")',
    'F.kl_div(F.log_softmax({x} / {c}, dim=-1), F.softmax({y} / {c}, dim=-1), reduction="none").sum(dim=-1)',
    "-(F.softmax({y}, dim=-1) * F.log_softmax({x}, dim=-1)).sum(dim=-1).mean()",
    "-(F.softmax({x}, dim=-1) * F.log_softmax({x}, dim=-1)).sum(dim=-1)",
    "F.cross_entropy({x}, F.softmax({y}, dim=-1))",
)
_OF_ROWS = ("{m} ** 2", "torch.clamp({m} - {c}, min=0.0)", "torch.exp(-{m})", "{m}")


def binary(program: Program) -> Value:
    """Of logits and targets between 0 and 1, element by element: cross-entropy, weighted, focal; joined at the end."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    y = program.input(x.shape, "rand").name
    call = 'F.binary_cross_entropy_with_logits({x}, {y}, reduction="none")'
    by_hand = (
        "torch.clamp({x}, min=0) - {x} * {y} + torch.log1p(torch.exp(-torch.abs({x})))",
        "F.softplus({x}) - {x} * {y}",
        "-({y} * F.logsigmoid({x}) + (1 - {y}) * F.logsigmoid(-{x}))",
    )
    told = call if rng.random() < 0.6 else rng.choice(by_hand)
    made = program.let(told.format(x=x.name, y=y), x.shape)
    if rng.random() < 0.6:
        p = program.let(f"torch.sigmoid({x.name})", x.shape).name
        met = rng.choice(("{p} * {y} + (1 - {p}) * (1 - {y})", "1 - torch.abs({y} - {p})"))
        near = program.let(met.format(p=p, y=y), x.shape).name
        power = rng.choice(("2", "2.0", "3", "2"))
        made = program.let(f"(1 - {near}) ** {power} * {made.name}", x.shape)
        if rng.random() < 0.6:
            q = fraction(rng)
            weight = program.let(f"{q} * {y} + (1 - {q}) * (1 - {y})", x.shape).name
            made = program.let(f"{weight} * {made.name}", x.shape)
    elif rng.random() < 0.4:
        made = program.let(f"{made.name} * (1 + {positive(rng)} * {y})", x.shape)
    return _ended(program, made)


def _ended(program: Program, made: Value) -> Value:
    """All of it, or rows, or one number."""
    text = program.rng.choice(_ENDS)
    if text == "{m}":
        return made
    shape = made.shape[:-1] if "-1)" in text[-3:] else ()
    return program.let(text.format(m=made.name), shape)


def _rows(program: Program) -> Value:
    """The value as rows of classes: places joined by their mean, or each a row."""
    x, rng = program.value, program.rng
    if x.rank == 3 and rng.random() < 0.5:
        x = program.let(f"{x.name}.reshape(-1, {x.name}.shape[-1])", (x.shape[0] * x.shape[1], x.shape[2]))
    elif x.rank > 2:
        places = ", ".join(str(d) for d in range(2, x.rank)) if x.rank > 3 else "1"
        x = program.let(f"{x.name}.mean(dim=({places}))", x.shape[:2] if x.rank > 3 else (x.shape[0], x.shape[2]))
    if x.rank != 2:
        raise Unfit
    if rng.random() < 0.5:
        x = layers.linear(program, program.size(rng.choice(("classes", "hidden"))))
    return x


def of_classes(program: Program) -> Value:
    """Of the class of each row."""
    x, rng = _rows(program), program.rng
    y = program.input(x.shape[:1], x.shape[1].text)
    program.values.remove(y)
    text = rng.choice(_OF_CLASSES).format(x=x.name, y=y.name, q=fraction(rng), c=positive(rng))
    is_rows = '"none"' in text or ("gather" in text and ".mean()" not in text)
    return program.let(text, x.shape[:1] if is_rows else ())


def smoothed(program: Program) -> Value:
    """Cross-entropy with soft targets, written out."""
    x, rng = _rows(program), program.rng
    y, q = program.input(x.shape[:1], x.shape[1].text), fraction(rng)
    program.values.remove(y)
    logs = program.let(rng.choice(("F.log_softmax({x}, dim=-1)", "{x}.log_softmax(1)")).format(x=x.name), x.shape).name
    one = program.let(f"-{logs}.gather(1, {y.name}.unsqueeze(1)).squeeze(1)", x.shape[:1]).name
    every = program.let(f"-{logs}.mean(dim=1)", x.shape[:1]).name
    made = program.let(f"(1 - {q}) * {one} + {q} * {every}", x.shape[:1])
    return program.let(f"{made.name}.mean()", ()) if rng.random() < 0.5 else made


def of_pairs(program: Program) -> Value:
    """Of two values, element by element or as distributions; joined at the end."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    others = program.alike(x)
    y = (rng.choice(others) if others and rng.random() < 0.3 else program.input(x.shape)).name
    if rng.random() < 0.3:
        text = rng.choice(_OF_DISTRIBUTIONS).format(x=x.name, y=y, c=positive(rng))
        if "cross_entropy" in text and x.rank != 2:
            raise Unfit
        rows = text.endswith("sum(dim=-1)")
        return program.let(text, x.shape[:-1] if rows else ())
    text = rng.choice(_OF_PAIRS).format(x=x.name, y=y, c=positive(rng), q=fraction(rng))
    return _ended(program, program.let(text, x.shape))


def overlap(program: Program) -> Value:
    """How much of two maps is in both of them."""
    x, rng = program.value, program.rng
    if x.rank < 2:
        raise Unfit
    y = program.input(x.shape, "rand").name
    p = program.let(f"torch.sigmoid({x.name}).flatten(1)", (x.shape[0], product(x.shape[1:]))).name
    t = program.let(f"{y}.flatten(1)", (x.shape[0], product(x.shape[1:]))).name
    both = program.let(f"({p} * {t}).sum(dim=1)", x.shape[:1]).name
    all_of = program.let(f"{p}.sum(dim=1) + {t}.sum(dim=1)", x.shape[:1]).name
    e = rng.choice(("1.0", "1e-3", "1.0"))
    texts = ("1 - (2 * {b} + {e}) / ({a} + {e})", "({b} + {e}) / ({a} - {b} + {e})")
    return program.let(rng.choice(texts).format(a=all_of, b=both, e=e), x.shape[:1])
