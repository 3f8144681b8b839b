"""Made-up studies: plausible records of three strategies on some forty tasks, the same ones for the same seed."""

from __future__ import annotations

import random
from pathlib import Path

from drkernel.scaling.records import RESULTS, Record, write
from drkernel.types import KernelTime, Verdict

FAMILIES = ("softmax", "layer_norm", "elementwise", "matmul", "row_reduction", "glu", "loss", "scan")
STAGES = ("relu", "scale", "gelu", "gain", "tanh")
STRATEGIES = ("single", "parallel 8", "managed w=4")

SOURCE = '''\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    """One row of {name} per program."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x_ptr + row * n + c, mask=m, other=0.0)  # attempt {call}
    v = tl.where(v > {literal}, v, 0.01 * v)
    tl.store(o_ptr + row * n + c, v, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        o = torch.empty_like(x)
        {name}_kernel[(x.numel() // n,)](x, o, n, BLOCK=triton.next_power_of_2(n), num_warps=4)
        return o
'''

FAILURES = (
    ("incorrect", "wrong_values", "output[3, 17] is 0.121, expected 0.0663; 100% of 1224 elements are wrong"),
    ("incorrect", "wrong_shape", "output has shape 8x128, expected 8x1"),
    ("invalid", "runtime_error", "line 14: `v = tl.lod(x_ptr)`: AttributeError: no attribute 'lod'"),
    ("invalid", "syntax_error", "line 12: `v = tl.load(x_ptr`: SyntaxError: '(' was never closed"),
    ("invalid", "timeout", "no answer within 60 s"),
    ("hack", "nothing_replaced", "the Triton kernels replace no work of the reference; PyTorch still runs aten::mm"),
    ("not_general", "wrong_on_other_shape", "right on the given inputs, wrong on 3x77"),
)


def verdict(rng: random.Random, family: str, skill: float) -> Verdict:
    """Correct with chance `skill`, and then the faster the more skilled."""
    if rng.random() > skill:
        status, reason, detail = rng.choices(FAILURES, (8, 2, 5, 3, 1, 2, 1))[0]
        evidence = {"error": "AttributeError", "line": 14} if status == "invalid" else {"case": "the given inputs"}
        if reason == "wrong_values":
            evidence |= {"index": [3, 17], "expected": 0.0663, "got": 0.121, "share": 1.0}
        return Verdict(status, reason, detail, device="simulated:H200", seconds=0.9, evidence=evidence)
    speedup = round(rng.lognormvariate(0.15 + 0.4 * skill, 0.35), 4)
    reference = rng.uniform(20, 90)
    rows = KernelTime(f"{family}_kernel", 1, reference / speedup, True), KernelTime("aten::copy_", 1, 1.5, False)
    theirs = (
        KernelTime(f"aten::{family}", 1, reference * 0.7, False),
        KernelTime("aten::mul", 2, reference * 0.3, False),
    )
    return Verdict(
        "ok",
        "faster" if speedup >= 1.1 else "lazy" if speedup >= 1 else "slower",
        speedup=speedup,
        coverage=round(rng.uniform(0.6, 1), 4),
        reference_ms=reference / 1000,
        submission_ms=reference / speedup / 1000,
        device="simulated:H200",
        seconds=0.8,
        lazy=speedup < 1.1,
        evidence={
            "replaced": 1.0,
            "operators_left": ["aten::copy_"],
            "weights_varied": True,
            "speedup_over": {"eager_tf32": speedup * 0.95, "compile": round(speedup * 0.8, 4)},
        },
        profile=rows,
        reference_profile=theirs,
    )


def records(tasks: int = 40, trials: int = 2, calls: int = 8, seed: int = 0, model: str = "seed") -> list[Record]:
    """All three strategies on the same tasks."""
    found = []
    for number in range(tasks):
        rng = random.Random(f"{seed}/task/{number}")
        family = FAMILIES[number % len(FAMILIES)]
        name = f"{family}+{rng.choice(STAGES)}"
        task = f"generated/{name}/{rng.randrange(16**8):08x}"
        level, ease = 1 + number % 3, rng.betavariate(2, 2)
        for strategy in STRATEGIES:
            for trial in range(trials):
                found += _trial(
                    seed, task, family, level, strategy, trial, 1 if strategy == "single" else calls, ease, model
                )
    return found


def _trial(
    seed: int, task: str, family: str, level: int, strategy: str, trial: int, calls: int, ease: float, model: str
) -> list[Record]:
    rng, rows = random.Random(f"{seed}/{task}/{strategy}/{trial}"), []
    for call in range(calls):
        managed = strategy.startswith("managed")
        shown = tuple(range(max(0, call - 4), call)) if managed else ()
        skill = min(0.95, ease * (0.7 + 0.12 * len(shown)))
        row = Record(
            task=task,
            family=family,
            level=level,
            split="test",
            strategy=strategy,
            trial=trial,
            chain=0 if managed else call,
            turn=call if managed else 0,
            call=call,
            shown=shown,
            prompt_tokens=400 + 350 * len(shown),
            tokens=rng.randrange(180, 420),
            finished=True,
            source=SOURCE.format(name=family, call=call, literal=round(rng.random(), 3)),
            verdict=verdict(rng, family, skill),
            generate_s=round(rng.uniform(0.5, 2), 3),
            judge_s=0.9,
            started=1_760_000_000.0 + call,
            model=model,
        )
        rows.append(row)
    return rows


def study(folder: Path, **options: object) -> Path:
    """A folder with the results.jsonl of such a study."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / RESULTS, records(**options))
    return folder
