"""From a graph to the source of a reference, as one author would write it.

reference.py    the whole file
constructor.py  arguments, modules, parameters
body.py         `forward`
blocks.py       parts that get a class of their own
layout.py       the order of things in the file
docs.py         docstrings and comments
style.py        what the author always does
names.py        usual names
lexicon.py      invented names and sentences
"""
