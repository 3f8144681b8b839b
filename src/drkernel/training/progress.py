"""Progress on long work: live bars on a terminal, one line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rich import progress as bars
from rich.console import Console
from rich.markup import escape

from drkernel.rollout import RolloutProgress


def make_console(quiet: bool = False) -> Console:
    """A console as wide as the terminal; without one, wide enough for a table of four columns."""
    console = Console(quiet=quiet)
    return console if console.is_terminal else Console(width=120, quiet=quiet)


class Progress:
    """Two bars: the run's steps, and the present part of a step."""

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

    def bar(self, title: str, total: int | None) -> Callable[[int], None]:
        """A bar for one part of a step. Call the result with how much was done; a full bar leaves the screen."""
        task = self._bars.add_task(title, total=total, note="")
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            self._bars.update(task, completed=done)
            if total is not None and done >= total:
                self._bars.update(task, visible=False)

        return advance

    def rollout(self, title: str) -> Callable[[RolloutProgress], None]:
        """A bar for a rollout: turns done, tokens sampled, verdicts awaited."""
        task = self._bars.add_task(title, total=None, note="")

        def show(state: RolloutProgress) -> None:
            note = f"{state.tokens} tokens, {state.judging} at the judge"
            done = state.turns_done == state.turns_total
            self._bars.update(task, total=state.turns_total, completed=state.turns_done, note=note, visible=not done)

        return show

    def log(self, line: str) -> None:
        """A line that stays, with the minutes since the start. It is never wrapped: it may hold a path or a command."""
        minutes = (time.perf_counter() - self._started) / 60
        self.console.print(f"[dim]{minutes:5.1f} min[/dim]  {escape(line)}", highlight=False, soft_wrap=True)
