"""How a budget of judge calls is spent on one task: which turns the next prompt holds, and when to stop.

    single       one completion
    parallel     `budget` independent completions (best of n)
    sequential   one chain: every turn sees all earlier ones, until the context is full
    mixture      `chains` such chains side by side
    managed      one chain whose turns are all kept outside; a prompt holds `window` of them (the paper's STTS)

A strategy decides from the judged turns of the trial alone, so a study that was interrupted goes on exactly as it would
have. Chains do not wait for each other, unless a limit or a stop rule is set: then every call waits for the ones before
it, since it must know whether it is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from drkernel.config import ScalingConfig


@dataclass(frozen=True)
class JudgedCall:
    """What a strategy knows of a judged turn."""

    call: int
    """Which judge call of the trial."""
    chain: int
    reward: float
    speedup: float
    """0 where the completion is not correct and honest."""
    coverage: float
    """Likewise."""
    tokens: int
    seconds: float
    """Engine and judge together."""


@dataclass(frozen=True)
class Ask:
    """A turn that a strategy wants next."""

    call: int
    chain: int
    turn: int
    """Within the chain."""
    shown: tuple[int, ...] = ()
    """The calls whose turns the prompt holds, in its order."""
    droppable: tuple[int, ...] = ()
    """Those that may be left out where the context is too short, the most dispensable first. Where the rest does not
    fit, the chain is full."""

    def smaller(self) -> Ask | None:
        """The same turn with one less shown; None where none may be left out."""
        if not self.droppable:
            return None
        first, *droppable = self.droppable
        return replace(self, shown=tuple(call for call in self.shown if call != first), droppable=tuple(droppable))


class Strategy:
    """The strategy that the options name."""

    def __init__(self, options: ScalingConfig):
        self.options = options
        self.label = options.label or _label(options)
        self.calls = 1 if options.name == "single" else options.budget
        """Most judge calls of a trial."""
        limits = (options.tokens, options.seconds, options.stop_at, options.patience)
        self.may_stop = any(limit is not None for limit in limits)
        """Whether a limit or a stop rule may end a trial before its last call."""

    def next(self, history: Sequence[JudgedCall], full: AbstractSet[int] = frozenset()) -> list[Ask]:
        """All turns that may be asked for now, those included that already are; none where the trial is over.

        history: the judged turns in the order of their calls. full: chains whose context is full.
        """
        if self._stopped(history):
            return []
        asks = STRATEGIES[self.options.name](history, self.options)
        asks = sorted((a for a in asks if a.call < self.calls and a.chain not in full), key=lambda ask: ask.call)
        return asks[:1] if self.may_stop else asks

    def _stopped(self, history: Sequence[JudgedCall]) -> bool:
        """Whether a limit is reached or a stop rule holds."""
        options = self.options
        reached = (
            (options.tokens, sum(played.tokens for played in history)),
            (options.seconds, sum(played.seconds for played in history)),
            (options.stop_at, max((played.speedup for played in history), default=0.0)),
            (options.patience, _calls_without_progress(history)),
        )
        return any(limit is not None and value >= limit for limit, value in reached)


def chains(history: Sequence[JudgedCall], number: int) -> list[Ask]:
    """The next turn of each of `number` chains; call numbers go round the chains."""
    asks = []
    for chain in range(number):
        own = tuple(played.call for played in history if played.chain == chain)
        asks.append(Ask(len(own) * number + chain, chain, len(own), own))
    return asks


def parallel(history: Sequence[JudgedCall], options: ScalingConfig) -> list[Ask]:
    """Chains of one turn."""
    return [ask for ask in chains(history, options.budget) if ask.turn == 0]


def managed(history: Sequence[JudgedCall], options: ScalingConfig) -> list[Ask]:
    """One more turn, after the kept ones in the order in which they were played."""
    kept = KEEP[options.keep](history, options.window, VALUES[options.by])
    shown = tuple(sorted(played.call for played in kept))
    return [Ask(len(history), 0, len(history), shown, tuple(played.call for played in kept))]


Value = Callable[[JudgedCall], tuple[float, ...]]


def keep_top(history: Sequence[JudgedCall], size: int, value: Value) -> list[JudgedCall]:
    """The best turns, the worst of them first. Of equals the later ones, so that failures do not repeat one prompt."""
    return sorted(history, key=lambda played: (value(played), played.call))[-size:]


def keep_window(history: Sequence[JudgedCall], size: int, value: Value) -> list[JudgedCall]:
    """The consecutive turns with the largest sum; of equals the earliest, as in the paper's code."""
    starts = range(max(1, len(history) - size + 1))
    total = lambda start: tuple(map(sum, zip(*map(value, history[start : start + size]), strict=True)))
    best = max(starts, key=total)  # the first of equals
    return list(history[best : best + size])


def keep_last(history: Sequence[JudgedCall], size: int, value: Value) -> list[JudgedCall]:
    return list(history[-size:])


KEEP = {"top": keep_top, "window": keep_window, "last": keep_last}
VALUES: dict[str, Value] = {
    "reward": lambda played: (played.reward,),
    "speedup": lambda played: (played.speedup,),
    "coverage": lambda played: (played.coverage, played.reward),
}
STRATEGIES: dict[str, Callable[[Sequence[JudgedCall], ScalingConfig], list[Ask]]] = {
    "single": lambda history, options: chains(history, 1),
    "parallel": parallel,
    "sequential": lambda history, options: chains(history, 1),
    "mixture": lambda history, options: chains(history, options.chains),
    "managed": managed,
}


def _calls_without_progress(history: Sequence[JudgedCall]) -> int:
    """Calls since the first one with the best reward; the first call itself is progress."""
    rewards = [played.reward for played in history]
    return len(rewards) - 1 - rewards.index(max(rewards)) if rewards else 0


def _label(options: ScalingConfig) -> str:
    """The name, and the options of it that are not the default ones.

    >>> _label(ScalingConfig()), _label(ScalingConfig(keep="last", window=2)), _label(ScalingConfig("mixture"))
    ('managed', 'managed (last, window 2)', 'mixture (4 chains)')
    """
    default, differing = ScalingConfig(), []
    if options.name == "mixture":
        differing.append(f"{options.chains} chains")
    if options.name == "managed":
        differing += [options.keep] if options.keep != default.keep else []
        differing += [f"by {options.by}"] if options.by != default.by and options.keep != "last" else []
        differing += [f"window {options.window}"] if options.window != default.window else []
    for key in ("tokens", "seconds", "stop_at", "patience"):
        if (value := getattr(options, key)) is not None:
            differing.append(f"{key} {value:g}")
    return f"{options.name} ({', '.join(differing)})" if differing else options.name
