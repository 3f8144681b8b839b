"""Tasks as graphs of operators: the generator `graphs`.

dims.py      sizes as expressions, with a published and a small value
nodes.py     inputs, parameters and nodes
op.py, ops/  what an operator is; the table of all
graph.py     what a graph is, how it is built and evaluated
sizes.py     inputs of random shapes
singles.py   tasks of one operator
cores.py     convolutions and products
chains.py    what follows them
networks/    networks of a few layers and of many
costs.py     graphs that are too large or too small
draw.py      families, and how often each is drawn
source/      from a graph to the source of a reference: names, styles, comments
stream.py    the stream of tasks
"""
