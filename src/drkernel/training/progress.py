"""Progress on long work: live bars on a terminal, one line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rich import progress as bars
from rich.console import Console

from drkernel import rollout


def make_console(quiet: bool = False) -> Console:
    """A terminal's own width; enough for a table of four columns where there is no terminal to ask."""
    console = Console(quiet=quiet)
    return console if console.is_terminal else Console(width=120, quiet=quiet)


class Progress:
    """Two bars: the run's steps, and whatever the present step is busy with."""

    def __init__(self, console: Console):
        self.console = console
        columns = (
            bars.TextColumn("{task.description:<28}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[note]}"),
        )
        self._bars = bars.Progress(*columns, console=console, disable=not console.is_terminal)
        self._started = time.perf_counter()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def steps(self, first: int, total: int) -> Iterator[int]:
        """Count from `first` to `total`, moving the upper bar after every step."""
        task = self._bars.add_task("steps", total=total, completed=first, note="")
        for step in range(first, total):
            yield step
            self._bars.update(task, completed=step + 1)

    def part(self, title: str, total: int | None) -> Callable[[int], None]:
        """A bar for one part of a step; call the result with how much was done. Done parts leave the screen."""
        task = self._bars.add_task(title, total=total, note="")
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            self._bars.update(task, completed=done)
            if total is not None and done >= total:
                self._bars.update(task, visible=False)

        return advance

    def rollout(self, title: str) -> Callable[[rollout.Progress], None]:
        """A bar for a rollout: turns done, tokens sampled, verdicts awaited."""
        task = self._bars.add_task(title, total=None, note="")

        def show(state: rollout.Progress) -> None:
            note = f"{state.tokens} tokens, {state.judging} at the judge"
            done = state.turns_done == state.turns_total
            self._bars.update(task, total=state.turns_total, completed=state.turns_done, note=note, visible=not done)

        return show

    def say(self, line: str) -> None:
        """A line that stays, with the minutes since the start."""
        self.console.print(f"[dim]{(time.perf_counter() - self._started) / 60:5.1f} min[/dim]  {line}", highlight=False)
