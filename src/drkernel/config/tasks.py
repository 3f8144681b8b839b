"""The config group `tasks`: what is to be solved."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.tasks.generators import DEFAULT


@dataclass
class TasksConfig:
    """What is to be solved (conf/tasks/)."""

    source: str = "generated"
    """`generated`, `handwritten`, one half of it (`handwritten:development`, `handwritten:final`), `written`, a
    folder (.py files, KernelBench), a .jsonl, .parquet or .py file, or `hub:<id>`."""
    count: int | None = None
    """How many training tasks to take; None takes all (a generator must be told)."""
    seed: int = 0
    """Which tasks are drawn of each split, those that are held out included, where there are more than the count; the
    split of a task never depends on it."""
    generator: str = DEFAULT
    """What draws them: `operators` composes a few operators; `graphs` draws PyTorch at large, among it small networks;
    `programs` are written statement by statement; `written` varies the 2,170 written tasks. Earlier ones, with
    fewer steps or tasks: `programs_55`, `written_1670`, `written_850`. The tasks of `operators` and a seed never
    change. Those of the others change with the code: name the commit, too."""
    levels: list[int] | None = None
    """KernelBench levels to keep; None keeps all."""
    families: list[str] | None = None
    """Operator families to keep; None keeps all."""
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    """The generator's: float32, float16, bfloat16, in equal shares; one that is named twice has two shares."""
    precision: str = "auto"
    """What arithmetic right submissions may use: ieee, tf32 or low (docs/policies.md); auto: by the task's dtypes."""
    backward: bool = False
    """Each task becomes its backward pass: given the gradients of its outputs, those of inputs and parameters. Tasks
    that have none are left out, so that there may be fewer than `count`."""
    eval_source: str | None = None
    """Where the test tasks come from; None: the test split of `source`, or the set published beside it."""
    eval_count: int = 48
    """How many test tasks the before/after table covers."""
