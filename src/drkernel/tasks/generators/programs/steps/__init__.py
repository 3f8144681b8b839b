"""The steps of free programs, each a function that adds statements to a program.

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
    others.py     what answers leave to PyTorch

To add one: write its function in the file of its kind, and give it a place among the steps of `draw.py`.
"""
