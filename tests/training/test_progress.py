"""What the console shows of a run."""

import io

from rich.console import Console

from drkernel.training.progress import Progress


def test_a_line_is_printed_as_it_is_whatever_brackets_it_has():
    console = Console(file=io.StringIO(), width=200)
    Progress(console).log("passed over: task t: differs at [0, 1] and [/b] and [red]")
    assert "task t: differs at [0, 1] and [/b] and [red]" in console.file.getvalue()


def test_a_line_is_one_line_however_long_its_paths_are():
    console, path = Console(file=io.StringIO(), width=40), "outputs/" + "a=b," * 40
    Progress(console).log(f"goes on from here: python train.py {path}")
    (line,) = console.file.getvalue().splitlines()
    assert line.endswith(path)
