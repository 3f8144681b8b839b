"""Tasks as graphs of operators: the generator `graphs`. `graph.py` says what a graph is."""
