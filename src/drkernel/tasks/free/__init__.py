"""Free programs: tasks whose source is written statement by statement, from what PyTorch offers, in any order.

    sizes.py      sizes as people publish them, and inputs
    program.py    statements, the module that they need, the source
    pointwise.py  formulas on elements: by hand, with numbers, with parameters
    rows.py       reductions, statistics that go back to what they are of, softmax, norms
    layers.py     layers, pools, gates, branches; modules that are called twice
    moves.py      shapes: parts, halves, places, axes
    pairs.py      further inputs, masks, attention written out, losses
    draw.py       which steps, how many, blocks that repeat; the stream of tasks

The graphs of `tasks.graphs` know every operator by its kernel, so that answers of several kinds can be written; these
programs know only shapes, and are answered from their lines (`coldstart.answers.lines`). They have what people write
and no list foresees: values that are needed later, statements in another order, the same block eight times.
"""

from drkernel.tasks.free.draw import FAMILIES, stream

__all__ = ["FAMILIES", "stream"]
