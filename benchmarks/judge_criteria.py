"""Every cheating and honest example of the tests, judged by this judge and by KernelBench's criterion.

    python benchmarks/judge_criteria.py OUT [--device simulated] [--workers 2] [--only 24 p07 ...]

OUT/verdicts.jsonl has each verdict. OUT/table.md counts where the two agree, and lists where they do not, with who is
right. Where values are the question, the output in fp64 on the given inputs is the arbiter: the reference's distance
from it, and the submission's, which is its distance from the reference, give or take the former.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import sys
from dataclasses import dataclass
from typing import Any

import judging
from rich.progress import track

from drkernel.judge import Judge
from drkernel.judge.boundary import aten
from drkernel.judge.trusted import criterion
from drkernel.judge.trusted.cases import cases, reference_model, reruns
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks.module import Reference
from drkernel.types import Task, Verdict
from tests.judge.examples import Example, examples, tasks

FOLDERS = ("honest", "hacks", "attacks")
_LESS_EXACT = 8.0
"""A submission that is so many times as far from fp64 as the reference has lost precision."""
_SEED = 1


@dataclass(frozen=True)
class Judged:
    folder: str
    example: Example
    verdict: Verdict

    @property
    def theirs(self) -> dict[str, Any]:
        return self.verdict.evidence["kernelbench"]

    @property
    def answers(self) -> tuple[bool, bool]:
        """(right by this judge, right by KernelBench's criterion)."""
        return self.verdict.ok, self.theirs["correct"]


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    found = judged(options)
    with open(options.out / "verdicts.jsonl", "w", encoding="utf-8") as file:
        for one in found:
            record = {"folder": one.folder, "example": one.example.name, "task": one.example.task}
            file.write(json.dumps(record | one.verdict.to_dict()) + "\n")
    between = [one for one in found if len(set(one.answers)) == 2]
    lines = [f"{len(found)} examples on {found[0].verdict.device}: {len(between)} lie between the criteria"]
    sides = collections.Counter(who_is_right(one).partition(":")[0] for one in between)
    lines += ["Right of these: " + ", ".join(f"{side} {number}" for side, number in sides.most_common()), ""]
    judging.write_table(options.out, [*lines, *counts(found), "", *paid(found), "", *disagreements(between)])
    print("\n".join([*lines, *counts(found)]))
    return 0


def judged(options: argparse.Namespace) -> list[Judged]:
    known, names = tasks(), tuple(options.only)
    chosen = [(folder, e) for folder in FOLDERS for e in examples(folder, options.device)]
    chosen = [(folder, e) for folder, e in chosen if not names or e.name.startswith(names)]
    with Judge(device=options.device, workers=options.workers, timeout_s=8.0, criterion="both") as judge:
        pending = [(folder, e, judge.submit(known[e.task], e.source)) for folder, e in chosen]
        return [Judged(folder, e, future.result()) for folder, e, future in track(pending, "judging")]


def counts(found: list[Judged]) -> list[str]:
    """Where both agree, by folder."""
    lines = ["| folder | examples | right by both | KernelBench alone | this judge alone | wrong by both |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for folder in FOLDERS:
        number = collections.Counter(one.answers for one in found if one.folder == folder)
        cells = (number[key] for key in ((True, True), (False, True), (True, False), (False, False)))
        lines.append(f"| {folder} | {number.total()} | " + " | ".join(map(str, cells)) + " |")
    return lines


def paid(found: list[Judged]) -> list[str]:
    """How many are correct and faster than some factors, by each criterion."""
    factors = (1.0, 1.2, 1.5, 2.0)
    lines = ["| folder | by | " + " | ".join(f"above {factor:g}x" for factor in factors) + " |"]
    lines.append("|---|---|" + "---:|" * len(factors))
    for folder in FOLDERS:
        mine = [one for one in found if one.folder == folder]
        speedups = {
            "this judge": [one.verdict.speedup or 0.0 for one in mine if one.verdict.ok],
            "KernelBench": [one.theirs["speedup"] or 0.0 for one in mine if one.theirs["correct"]],
        }
        for name, numbers in speedups.items():
            cells = (str(sum(number > factor for number in numbers)) for factor in factors)
            lines.append(f"| {folder} | {name} | " + " | ".join(cells) + " |")
    return lines


def disagreements(between: list[Judged]) -> list[str]:
    lines = ["| example | task | this judge | KernelBench | speed-up there | who is right, and why |"]
    lines.append("|---|---|---|---|---:|---|")
    for one in between:
        own = f"{one.verdict.status} {one.verdict.reason}"
        theirs = "right" if one.theirs["correct"] else one.theirs["why"].partition(":")[0]
        speedup = f"{one.theirs['speedup']:.3g}" if one.theirs["speedup"] else "-"
        cells = (one.example.name, one.example.task, own, theirs, speedup, who_is_right(one))
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return lines


def who_is_right(one: Judged) -> str:
    """Who is right about a submission on which the criteria disagree, in words."""
    verdict = one.verdict
    if verdict.ok and one.theirs["training"]:
        return "both by their rule: right in eval mode, and KernelBench runs modules as they are constructed"
    if verdict.ok:
        return f"this judge: {_values(one)}" if one.folder == "honest" else f"open: {_values(one)}"
    if verdict.status == "invalid":
        return f"this judge: it fails in another call or on other inputs: {verdict.detail[:90]}"
    if verdict.status == "not_general":
        return "this judge: wrong on another legal shape, right at the published one"
    if verdict.reason == "forbidden":
        return f"a rule of this judge: outputs are right, by a route that it refuses unseen: {verdict.detail[:90]}"
    if verdict.status != "incorrect":
        return f"this judge: outputs are right, but not by its kernels or not honestly: {verdict.detail[:90]}"
    case = verdict.evidence.get("case", "")
    if verdict.reason not in ("wrong_values", "not_finite"):
        return f"this judge: KernelBench does not ask ({verdict.reason})"
    if case and not case.startswith("the given inputs"):
        return f"this judge: wrong on other legal inputs or weights ({case}); on the given ones {_values(one)}"
    return _on_given_values(one)


def _on_given_values(one: Judged) -> str:
    reference, own = reference_error(one.example.task, one.theirs["training"]), one.verdict.evidence.get("error")
    if one.theirs["error"] is None:
        return "open: no fp64 output to compare with"
    if one.theirs["error"] > _LESS_EXACT * reference:
        return f"this judge: {_values(one)}"
    if isinstance(own, float) and own > _LESS_EXACT * (one.theirs["error"] + reference):
        return f"this judge: off by {own:.1e} with other weights or in another call; in the trials {_values(one)}"
    return f"not settled by these values: {_values(one)}; this judge says: {one.verdict.detail[:140]}"


def _values(one: Judged) -> str:
    """How far the outputs are from fp64 on the given inputs."""
    reference, error = reference_error(one.example.task, one.theirs["training"]), one.theirs["error"]
    if error is None:
        return "no fp64 output to compare with"
    low, high = max(0.0, error - reference), error + reference
    return f"{low:.1e} to {high:.1e} from fp64, the reference {reference:.1e}"


@functools.cache
def reference_error(name: str, train: bool) -> float:
    """The largest distance of a task's reference from its own output in fp64, at the simulated device's sizes."""
    task: Task = shrink.fit(tasks()[name])
    reference = Reference(task, task.small)
    model, inputs = reference_model.build(reference, _SEED), reference.inputs(_SEED)
    rounded = reruns.forward(model, model.model, inputs, train, _SEED)
    exact = reruns.Rerun(task.precision, model, inputs, train, _SEED).exact()
    outputs: Any = OutputTensor
    return criterion.furthest(rounded, cases.map_tensors(exact, outputs))


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="examples whose names start so")
    aten.install()
    sys.exit(main(parser.parse_args()))
