"""Trajectories for `stage=sft`: records of messages become rows of tokens, laid out as a rollout lays them out.

A record has `messages`, user and assistant in turn (a system message may come first), and may have the other columns of
the paper's cold-start set: `original_python_code`, `entry_point`, `best_round` (from 1; 0: no submission is right),
`enable_thinking`. Ours adds `precision`. Its messages are of one of two kinds:

    plain    the reference, a submission, feedback, a submission, ...     `policy.prompts` renders them
    ready    a whole prompt, a completion, a whole prompt, a completion, ...    go through the chat template as they are

A record is plain where its first message is its `original_python_code`; `sft.messages` may say so instead.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from drkernel.config import SftConfig
from drkernel.judge.feedback import fitted
from drkernel.policy.prompts import ChatPrompts, Prompts, extract_code
from drkernel.policy.thinking import CLOSE, OPEN
from drkernel.tasks.precision import AUTO, with_precision
from drkernel.training.processes import spread
from drkernel.training.ranks import Ranks
from drkernel.training.sft_sources import HUB, Source, files, hub_parts, sources
from drkernel.training.supervised import Row, row
from drkernel.types import PRECISIONS, DrKernelError, Task

COLUMNS = (
    *("messages", "original_python_code", "entry_point", "best_round", "enable_thinking", "precision"),
    *("reasons", "speedups"),
)
NOT_JUDGED = "not_judged"
"""The reason of a turn that is right by construction, and that nobody judged."""
EXPECTED = "list<{role, content}>"
CUT = "cut at sft.max_length"


@dataclass(frozen=True)
class Dialogue:
    """One record."""

    place: str
    """Where it was found, for errors."""
    system: str
    messages: tuple[str, ...]
    """User and assistant in turn; the assistant has the last word."""
    reference: str
    """`original_python_code`, or nothing."""
    entry_point: str
    best_round: int
    """The best turn, from 1; 0 where none is right or nothing is said."""
    thinking: bool
    precision: str
    right: tuple[bool, ...] | None = None
    """Whether each turn is right; None where nothing is said."""

    @property
    def key(self) -> str:
        """The same for trajectories of one task."""
        return hashlib.sha256((self.reference or self.messages[0]).strip().encode()).hexdigest()

    @property
    def is_plain(self) -> bool:
        return bool(self.reference) and self.messages[0].strip() == self.reference.strip()

    @property
    def task(self) -> Task:
        task = Task(self.key[:16], self.reference or self.messages[0], self.entry_point)
        return with_precision(task, self.precision)


@dataclass(frozen=True)
class Renderer:
    """Records as rows."""

    prompts: Prompts
    options: SftConfig
    max_length: int
    feedback_tokens: int
    """Most tokens of plain feedback: as many as in a rollout."""

    def row(self, dialogue: Dialogue) -> tuple[Row | None, str]:
        """The row of a record, or None; and what happened to it, if anything did."""
        if dialogue.thinking and getattr(self.prompts, "thinking", "none") == "none":
            return None, "with enable_thinking: prompts here ask for completions without thoughts"
        completions = [
            text for number, text in enumerate(dialogue.messages) if number % 2 and self._trains(number, dialogue)
        ]
        if not all(text.strip() for text in completions):
            return None, "with an empty completion to train on"
        without_thoughts = isinstance(self.prompts, ChatPrompts) and self.prompts.thinking == "none"
        if without_thoughts and any(tag in text for text in completions for tag in (OPEN, CLOSE)):
            return None, f"with thoughts ({OPEN}) in a completion: policy.thinking=kept trains on them"
        if not any(self._trains(number, dialogue) for number in range(len(dialogue.messages))):
            return None, f"without a turn to train on (sft.loss_on={self.options.loss_on})"
        parts = self._parts(dialogue)
        size = sum(len(ids) for ids, _ in parts)
        if size > self.max_length and self.options.too_long == "drop":
            return None, "longer than sft.max_length"
        whole = row(parts)
        cut = Row(whole.tokens[: self.max_length], whole.trains[: self.max_length])
        if not cut.trains.any():
            return None, "without a token to train on before sft.max_length"
        return cut, CUT if size > self.max_length else ""

    def _parts(self, dialogue: Dialogue) -> list[tuple[list[int], bool]]:
        """(tokens, whether they train) of every message; those after the last that trains are left away."""
        style = self.options.messages
        plain = dialogue.is_plain if style == "auto" else style == "plain"
        write = self._plain if plain else self._ready
        parts = [(write(dialogue, number), self._trains(number, dialogue)) for number in range(len(dialogue.messages))]
        return parts[: 1 + max(number for number, (_, trains) in enumerate(parts) if trains)]

    def _trains(self, number: int, dialogue: Dialogue) -> bool:
        turn, is_completion = number // 2 + 1, number % 2 == 1
        if is_completion and self.options.loss_on == "right":
            return bool(dialogue.right and dialogue.right[turn - 1])
        if not is_completion and not (self.options.loss_on_feedback and number):
            return False
        if self.options.loss_on in ("all", "right"):
            return True
        return turn == dialogue.best_round or (self.options.loss_on == "until_best" and turn < dialogue.best_round)

    def _plain(self, dialogue: Dialogue, number: int) -> list[int]:
        text, prompts = dialogue.messages[number], self.prompts
        if number == 0:
            return prompts.first(dialogue.task)
        if number % 2 == 0:
            return prompts.next(fitted(text.splitlines(), self.feedback_tokens, prompts.count))
        if "```" in text and isinstance(prompts, ChatPrompts):
            return prompts.reply(text)
        return prompts.completion(extract_code(text, f"{dialogue.entry_point}New") or text, dialogue.task)

    def _ready(self, dialogue: Dialogue, number: int) -> list[int]:
        if not isinstance(self.prompts, ChatPrompts):
            found = "its messages are whole prompts (the first is not original_python_code)"
            raise DrKernelError(f"{dialogue.place}: {found}; expected policy.prompts=chat for those")
        if number == 0 and self.options.messages == "own_opening":
            if not dialogue.reference:
                raise DrKernelError(
                    f"{dialogue.place}: found no original_python_code; sft.messages=own_opening needs it"
                )
            return self.prompts.first(dialogue.task)
        if number % 2 == 0:
            return self.prompts.ask(dialogue.messages[number], first=number == 0, system=dialogue.system)
        return self.prompts.reply(dialogue.messages[number])


@dataclass(frozen=True)
class Part:
    """How many rows are of one source."""

    source: Source
    train: int
    held_out: int


@dataclass
class SftData:
    """What a supervised stage trains on."""

    train: list[Row]
    held_out: list[Row]
    notes: Counter[str] = field(default_factory=Counter)
    """How many trajectories were left out or cut, by reason."""
    parts: list[Part] = field(default_factory=list)
    """What of them came from each source, in the order of the rows."""

    @property
    def digest(self) -> str:
        """16 hex digits over the rows that train, in their order."""
        found = hashlib.sha256()
        for each in self.train:
            found.update(b"%d;%b%b" % (len(each), each.tokens.tobytes(), each.trains.tobytes()))
        return found.hexdigest()[:16]

    def lines(self) -> list[str]:
        """For the user: how many, how long, and what became of the others."""
        lengths = sorted(map(len, self.train))
        middle, most = lengths[len(lengths) // 2], lengths[-1]
        trained = sum(int(each.trains.sum()) for each in self.train)
        said = (
            f"{len(self.train)} trajectories train, {len(self.held_out)} are held out; tokens each: median {middle}, "
        )
        said += f"longest {most}; {sum(lengths)} in all, {trained / sum(lengths):.0%} of them train"
        notes = (f"{number} {'' if why == CUT else 'left out, '}{why}" for why, number in self.notes.items())
        return [said, *(self._line(part) for part in self.parts if self.is_mixed), *notes]

    @property
    def is_mixed(self) -> bool:
        """Whether there are several sources, or an epoch takes another share of one than all of it."""
        return [part.source.weight for part in self.parts] not in ([], [1.0])

    def _line(self, part: Part) -> str:
        source, taken = part.source, part.source.weight * part.train
        share = f"weight {source.weight:g}, about {taken:.0f} in an epoch"
        return f"{source.name}: {part.train} trajectories train ({share}), {part.held_out} are held out"


def load(data: Any, renderer: Renderer, ranks: Ranks) -> SftData:
    """The rows that `sft.data` names, source by source; each rank tokenises a share of them. Collective.

    Raises DrKernelError, on all ranks, where a file or a record cannot be read, or where no row of a source is left.
    """

    def rendered() -> list[tuple[int, int, str, Row | None, str]]:
        every = ((number, d) for number, source in enumerate(sources(data)) for d in read(source.place))
        mine = [(i, number, d) for i, (number, d) in enumerate(every) if i % ranks.size == ranks.rank]
        rows = spread(renderer.row, (d for *_, d in mine), share=ranks.size)
        return [(i, number, d.key, *row) for (i, number, d), row in zip(mine, rows, strict=True)]

    with collection_paused():
        parts = ranks.all_gather_object(rendered)
    found = sorted((entry for part in parts for entry in part), key=lambda entry: entry[0])
    rows = [(number, key, made) for _, number, key, made, _ in found if made is not None]
    unseen: set[str] = set()
    for number in {number for number, *_ in rows}:
        unseen |= held_out({key for owner, key, _ in rows if owner == number}, renderer.options.held_out)
    made = SftData(
        [row for _, key, row in rows if key not in unseen],
        [row for _, key, row in rows if key in unseen],
        Counter(why for *_, why in found if why),
    )
    for number, source in enumerate(sources(data)):
        keys = [key for owner, key, _ in rows if owner == number]
        part = Part(source, sum(key not in unseen for key in keys), sum(key in unseen for key in keys))
        reasons = Counter(why for _, owner, *_, why in found if owner == number and why)
        _expect_rows(part, reasons, renderer.options.epochs)
        made.parts.append(part)
    return made


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: it would visit each of hundreds of thousands of rows again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _expect_rows(part: Part, reasons: Mapping[str, int], epochs: float) -> None:
    """Raises DrKernelError where nothing of a source would train."""
    said = [f"{number} {reason}" for reason, number in reasons.items()]
    said += [f"{part.held_out} held out by sft.held_out"] * bool(part.held_out)
    place, weight = part.source.place, part.source.weight
    if not part.train:
        raise DrKernelError(f"sft.data={place}: nothing is left to train on ({'; '.join(said) or 'it has no record'})")
    if weight * part.train * epochs < 1:
        found = f"{part.train} trajectories with weight {weight:g} are less than one in sft.epochs={epochs:g}"
        raise DrKernelError(f"sft.data: {place}: {found}; expected a weight of at least {1 / part.train / epochs:.2g}")


def held_out(keys: set[str], share: float) -> set[str]:
    """The tasks that do not train: the share of them with the smallest hashes, at least one of several."""
    most = min(len(keys) - 1, math.ceil(share * len(keys)))
    return set(sorted(keys)[:most])


def read(source: str) -> Iterator[Dialogue]:
    """The records of a parquet or .jsonl file, of all parquet files below a folder by name (of all .jsonl files where
    there are none), or of one split of a hub data set: `hub:OWNER/NAME` is its split `train`, `hub:OWNER/NAME/SPLIT`
    another.

    Raises DrKernelError naming the file, the column or row, what was found and what was expected.
    """
    if source.startswith(HUB):
        yield from _hub(source)
        return
    for file in files(source):
        yield from _jsonl(file) if file.suffix == ".jsonl" else _parquet(file)


def _parquet(path: Path) -> Iterator[Dialogue]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DrKernelError(
            f"sft.data: {path}: not a parquet file: {error}; expected a .parquet or .jsonl file"
        ) from None
    names = file.schema_arrow.names
    _expect_messages(str(path), names)
    chosen = [name for name in COLUMNS if name in names]
    records = (r for batch in file.iter_batches(batch_size=256, columns=chosen) for r in batch.to_pylist())
    yield from (dialogue(record, f"{path}: row {number}") for number, record in enumerate(records))


def _jsonl(path: Path) -> Iterator[Dialogue]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}: line {number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise DrKernelError(f"sft.data: {place}: not JSON: {error.msg}") from None
            if not isinstance(record, dict):
                raise DrKernelError(f"sft.data: {place}: found {_short(record)}, expected an object")
            _expect_messages(place, list(record))
            yield dialogue(record, place)


def _hub(source: str) -> Iterator[Dialogue]:
    import datasets

    owner, name, split = hub_parts(source)
    try:
        parts = datasets.load_dataset(f"{owner}/{name}" if name else owner)
    except Exception as error:  # a dozen unrelated types
        raise DrKernelError(f"sft.data={source}: cannot be loaded: {type(error).__name__}: {error}") from None
    if split not in parts:
        expected = f"expected one of {', '.join(parts)}: hub:{owner}/{name}/SPLIT"
        raise DrKernelError(f"sft.data={source}: found no split {split!r}; {expected}")
    rows = parts[split]
    _expect_messages(f"{source}, {split}", rows.column_names)
    yield from (dialogue(record, f"{source}: {split} row {number}") for number, record in enumerate(rows))


def _expect_messages(place: str, names: Sequence[str]) -> None:
    if "messages" not in names:
        raise DrKernelError(f"sft.data: {place}: found columns {', '.join(names)}; expected 'messages', {EXPECTED}")


def dialogue(record: Mapping[str, Any], place: str) -> Dialogue:
    """A record, checked. Raises DrKernelError naming `place`."""
    place, messages = f"sft.data: {place}", record["messages"]
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise DrKernelError(f"{place}: column 'messages': found {_short(messages)}, expected {EXPECTED}")
    roles = [message["role"] for message in messages]
    system = messages[0]["content"] if roles[:1] == ["system"] else ""
    spoken = messages[1:] if roles[:1] == ["system"] else messages
    if not spoken or [m["role"] for m in spoken] != ["user", "assistant"] * (len(spoken) // 2):
        found = f"found the roles {', '.join(roles) or 'of nobody'}"
        raise DrKernelError(f"{place}: column 'messages': {found}; expected user, assistant, ... in turn")
    _expect_types(record, place)
    precision = record.get("precision") or AUTO
    if precision not in PRECISIONS:
        expected = f"expected one of {', '.join(PRECISIONS)}"
        raise DrKernelError(f"{place}: column 'precision': found {precision!r}, {expected}")
    best = int(record.get("best_round") or 0)
    if not 0 <= best <= len(spoken) // 2:
        raise DrKernelError(f"{place}: column 'best_round': found {best}, expected at most {len(spoken) // 2} turns")
    contents = tuple(message["content"] for message in spoken)
    known: dict[str, Any] = {
        "reference": record.get("original_python_code") or "",
        "entry_point": record.get("entry_point") or "Model",
    }
    thinking, reasons, speedups = bool(record.get("enable_thinking")), record.get("reasons"), record.get("speedups")
    right, turns = None, len(spoken) // 2
    if reasons and speedups:
        for column, values in (("speedups", speedups), ("reasons", reasons)):
            if len(values) != turns:
                raise DrKernelError(f"{place}: column {column!r}: found {len(values)}, expected {turns}, one a turn")
        right = tuple(s is not None or r == NOT_JUDGED for r, s in zip(reasons, speedups, strict=True))
    known |= {"best_round": best, "thinking": thinking, "precision": precision, "right": right}
    return Dialogue(place, system, contents, **known)


def _expect_types(record: Mapping[str, Any], place: str) -> None:
    """Raises DrKernelError for the first column that has a value of another type than it should."""
    is_number = lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    is_list = lambda value, holds: isinstance(value, (list, tuple)) and all(v is None or holds(v) for v in value)
    is_text = lambda value: isinstance(value, str)
    wanted: dict[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(("original_python_code", "entry_point", "precision"), (is_text, "text")),
        "best_round": (lambda value: is_number(value) and value % 1 == 0, "a whole number"),
        "enable_thinking": (lambda value: isinstance(value, bool), "true or false"),
        "reasons": (lambda value: is_list(value, is_text), "a list of texts, one a turn"),
        "speedups": (lambda value: is_list(value, is_number), "a list of numbers, one a turn"),
    }
    for column, (holds, expected) in wanted.items():
        value = record.get(column)
        if value is not None and not holds(value):
            raise DrKernelError(f"{place}: column {column!r}: found {_short(value)}, expected {expected}")


def _is_message(message: object) -> bool:
    text = cast(Mapping[str, Any], message) if isinstance(message, dict) else {}
    return isinstance(text.get("role"), str) and isinstance(text.get("content"), str)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
