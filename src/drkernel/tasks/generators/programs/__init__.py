"""Free programs: tasks whose source is written statement by statement, from what PyTorch offers, in any order.

    sizes.py      sizes as people publish them, and inputs
    program.py    statements, the module that they need, the source
    steps/        what a statement may be, in the file of its kind
    draw.py       which steps, how many, blocks that repeat; the stream of tasks

The graphs of `generators.graphs` know every operator by its kernel, so that answers of several kinds can be written;
these programs know only shapes, and are answered from their lines (`coldstart.answers.lines`). They have what people
write and no list foresees: values that are needed later, statements in another order, the same block eight times.
"""

from drkernel.tasks.generators.programs.draw import FAMILIES, stream

__all__ = ["FAMILIES", "stream"]
