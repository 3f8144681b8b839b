"""Tasks as graphs of operators: version 2 of the generator. `graph.py` says what a graph is."""
