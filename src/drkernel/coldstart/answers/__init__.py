"""Answers to tasks of the generator `graphs`, by construction.

    task -> graph -> steps (partition.py) -> library calls and kernels -> a submission (submission.py)

A kernel is composed from pieces: an index over elements (`sites`), lines per operator (`chain`), and what joins
elements (`rows`, `windows`, `products`, ...). `grades.answers` gives all answers of a task, right and mistaken.
"""
