"""Free programs: tasks whose source is written statement by statement, from what PyTorch offers, in any order.

    sizes.py      sizes as people publish them, and inputs
    program.py    statements, the module that they need, the source
    pointwise.py  formulas on elements: by hand, with numbers, with parameters
    rows.py       reductions, statistics that go back to what they are of, softmax, norms
    layers.py     layers, pools, gates, branches; modules that are called twice
    moves.py      shapes: parts, halves, places, axes
    pairs.py      further inputs, masks, attention written out, losses
    windows.py    pools of powers and with frames, halves that gate, stencils, layers of groups and with changed weights
    products.py   einsum, vectors, distances, correlations, scores behind masks, turns by halves
    statistics.py dimensions that lie apart, both moments, ranks, formulas of several cases
    losses.py     of logits, classes, distributions
    recurrent.py  states over a few places, cells, series, descents
    draw.py       which steps, how many, blocks that repeat; the stream of tasks

The graphs of `tasks.graphs` know every operator by its kernel, so that answers of several kinds can be written; these
programs know only shapes, and are answered from their lines (`coldstart.answers.lines`). They have what people write
and no list foresees: values that are needed later, statements in another order, the same block eight times.
"""

from drkernel.tasks.free.draw import FAMILIES, stream

__all__ = ["FAMILIES", "stream"]
