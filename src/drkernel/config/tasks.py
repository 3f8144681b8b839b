"""The config group `tasks`: what is to be solved."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.tasks.generator import VERSION


@dataclass
class TasksConfig:
    """What is to be solved (conf/tasks/)."""

    source: str = "generated"
    """`generated`, `handwritten`, one half of it (`handwritten:development`, `handwritten:final`), `written`, a
    folder (.py files, KernelBench), a .jsonl, .parquet or .py file, or `hub:<id>`."""
    count: int | None = None
    """How many training tasks to take; None takes all (a generator must be told)."""
    seed: int = 0
    """Which tasks the generator draws; the split of a composition never depends on it."""
    generator: int = VERSION
    """Version of the generator: 1 composes operators, 2 draws graphs of them, among them small networks, 3 writes
    programs statement by statement, 4 does so with more kinds of statements, 5 and later vary written tasks. The tasks
    of version 1 and a seed never change. Those of later versions change with the code: name the commit, too."""
    levels: list[int] | None = None
    """KernelBench levels to keep; None keeps all."""
    families: list[str] | None = None
    """Operator families to keep; None keeps all."""
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    """The generator's: float32, float16, bfloat16, in equal shares; one that is named twice has two shares."""
    precision: str = "auto"
    """What arithmetic right submissions may use: ieee, tf32 or low (docs/policies.md); auto: by the task's dtypes."""
    eval_source: str | None = None
    """Where the test tasks come from; None: the test split of `source`, or the set published beside it."""
    eval_count: int = 48
    """How many test tasks the before/after table covers."""
