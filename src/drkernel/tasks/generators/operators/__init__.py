"""Compositions of a few operators, each of which has one entry: the generator `operators`.

    operator.py   what an operator is
    stages.py     element-wise operators
    rows.py       norms, scans and reductions along rows
    pairs.py      distances and losses of two tensors
    shaped.py     products, pools, look-ups and gated units
    layouts.py    shapes, as published and small
    families.py   which operators may be composed, in which order and on which shapes
    writer.py     from a composition to a source, in one of many styles
    stream.py     the stream of tasks

A stage is element-wise, and any number of stages may surround a core. A core is everything else (a norm, a reduction, a
product, ...), and a composition has at most one.

To add an operator: write its entry in the file of its kind (`Operator` documents each field). A stage then takes part
in all families that draw from all stages; a core must be among the `cores` of a family (`families.py`), which those
in the tuples of their kind are already. An incomplete entry is an error that names what is missing. Give it `since`,
the next edition, and let `tasks.generators` name a generator for it: earlier ones do not draw it, so their tasks stay.
"""

from __future__ import annotations

from drkernel.tasks.generators.operators import pairs, rows, shaped, stages
from drkernel.tasks.generators.operators.operator import Operator, State, register

__all__ = ["COLUMN_STAGES", "CORES", "INPUT_STAGES", "OPERATORS", "STAGES", "UNARY_STAGES", "Operator", "State"]

OPERATORS: dict[str, Operator] = register(
    stages.ACTIVATIONS,
    stages.ARITHMETIC,
    stages.WITH_INPUT,
    stages.WITH_PARAMETER,
    rows.NORMS,
    rows.ROW_REDUCTIONS,
    rows.ROW_EXTREMA,
    rows.SCANS,
    pairs.SIMILARITIES,
    pairs.LOSSES,
    shaped.PRODUCTS,
    shaped.TRANSPOSES,
    shaped.LOOKUPS,
    shaped.COLUMN_REDUCTIONS,
    shaped.COLUMN_EXTREMA,
    shaped.POOLS,
    shaped.GATED_UNITS,
)
STAGES = {name: op for name, op in OPERATORS.items() if op.is_stage}
CORES = {name: op for name, op in OPERATORS.items() if not op.is_stage}

COLUMN_STAGES = tuple(name for name, op in STAGES.items() if op.parameters)
"""Stages with one parameter per column."""
INPUT_STAGES = tuple(name for name, op in STAGES.items() if op.second)
"""Stages with a second input of the same shape."""
UNARY_STAGES = tuple(name for name in STAGES if name not in COLUMN_STAGES + INPUT_STAGES)
