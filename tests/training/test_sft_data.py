"""Trajectories in parquet become rows: plain ones as a rollout would have them, ready ones as the template has them."""

import dataclasses
import json

import pyarrow
import pytest
from pyarrow import parquet

from drkernel.config import SftConfig
from drkernel.judge.feedback import fitted
from drkernel.policy import load_prompts
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.training import sft_data
from drkernel.training.ranks import Ranks
from drkernel.training.sft_data import CUT, Renderer
from drkernel.types import DrKernelError, Task
from tests.training.chat_policy import chat_tokenizer

SOURCE = "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x\n"
ANSWERS = ("class ModelNew: first\n", "class ModelNew: second\n", "class ModelNew: third\n")
FEEDBACK = ("wrong: wrong_values", "correct, faster: speedup 1.50 coverage 0.90\nyours: k 1.0us\nreference: r 1.5us")
PROMPT = "Please make this faster:\n" + SOURCE


def messages(first: str, answers=ANSWERS, feedback=FEEDBACK) -> list[dict]:
    texts = [first, *(text for pair in zip(answers, (*feedback, ""), strict=True) for text in pair)][: 2 * len(answers)]
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def record(first: str = SOURCE, **changes) -> dict:
    made = {"messages": messages(first), "original_python_code": SOURCE, "entry_point": "Model", "best_round": 2}
    return {key: value for key, value in (made | changes).items() if value is not ...}


def write(path, *records: dict):
    parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)
    return str(path)


@pytest.fixture(scope="module")
def chat():
    return load_prompts("chat", chat_tokenizer())


@pytest.fixture(scope="module")
def compact():
    return load_prompts("compact", train_tokenizer([SOURCE, *ANSWERS, *FEEDBACK], 400))


def load(path, prompts, max_length=10_000, feedback_tokens=1000, ranks=None, **options):
    config = SftConfig(**{"held_out": 0.0, **options})
    data = path if isinstance(path, (list, dict)) else str(path)
    return sft_data.load(data, Renderer(prompts, config, max_length, feedback_tokens), ranks or Ranks())


def only(path, prompts, **options):
    (row,) = load(path, prompts, **options).train
    return row


def trains(row, prompts) -> list[str]:
    """The text of each stretch of tokens that train."""
    parts, before = [], False
    for token, now in zip(row.tokens.tolist(), row.trains.tolist(), strict=True):
        if now:
            parts = parts if before else [*parts, []]
            parts[-1].append(token)
        before = now
    return [prompts.tokenizer.decode(part) for part in parts]


@pytest.mark.parametrize("style", ["chat", "compact"])
def test_a_plain_record_is_what_a_rollout_would_have_been(style, tmp_path, request):
    prompts = request.getfixturevalue(style)
    row = only(write(tmp_path / "t.parquet", record()), prompts)
    expected, mask = [], []
    for k, answer in enumerate(ANSWERS):
        asked = prompts.next(FEEDBACK[k - 1]) if k else prompts.first(Task("t", SOURCE))
        replied = prompts.completion(answer)
        expected += asked + replied
        mask += [False] * len(asked) + [True] * len(replied)
    assert row.tokens.tolist() == expected and row.trains.tolist() == mask


def test_a_ready_record_is_what_the_chat_template_renders(chat, tmp_path):
    row = only(write(tmp_path / "t.parquet", record(PROMPT)), chat)
    rendered = chat.tokenizer.apply_chat_template(messages(PROMPT), tokenize=False, enable_thinking=False)
    assert chat.tokenizer.decode(row.tokens.tolist()) == rendered.removesuffix("\n")
    assert trains(row, chat) == [f"{answer}<|im_end|>" for answer in ANSWERS]


def test_a_system_message_comes_first(chat, tmp_path):
    said = [{"role": "system", "content": "Be brief."}, *messages(PROMPT)]
    row = only(write(tmp_path / "t.parquet", record(messages=said)), chat)
    rendered = chat.tokenizer.apply_chat_template(said, tokenize=False, enable_thinking=False)
    assert chat.tokenizer.decode(row.tokens.tolist()) == rendered.removesuffix("\n")


def test_the_first_prompt_may_be_our_own(chat, tmp_path):
    path = write(tmp_path / "t.parquet", record(PROMPT))
    ours, theirs = only(path, chat, messages="own_opening"), only(path, chat)
    opening = chat.first(Task("t", SOURCE))
    assert ours.tokens.tolist()[: len(opening)] == opening
    assert trains(ours, chat) == trains(theirs, chat)
    with pytest.raises(DrKernelError, match=r"t\.parquet: row 0: found no original_python_code"):
        load(write(tmp_path / "t.parquet", record(PROMPT, original_python_code=...)), chat, messages="own_opening")


def test_which_kind_a_record_is_may_be_said(chat, compact, tmp_path):
    path = write(tmp_path / "t.parquet", record())
    ready = only(path, chat, messages="ready")
    assert chat.tokenizer.decode(ready.tokens.tolist()).startswith(f"<|im_start|>user\n{SOURCE}<|im_end|>")
    bare = write(tmp_path / "bare.parquet", record(original_python_code=..., entry_point=..., best_round=...))
    assert only(bare, chat, messages="plain").tokens.tolist() == only(path, chat).tokens.tolist()
    with pytest.raises(DrKernelError, match=r"row 0: .*whole prompts.*expected policy\.prompts=chat"):
        load(write(tmp_path / "r.parquet", record(PROMPT)), compact)


def test_a_plain_answer_with_prose_keeps_it_in_chat_and_loses_it_in_compact(chat, compact, tmp_path):
    prose = "A plan.\n```python\nclass ModelNew: one\n```\n"
    path = write(tmp_path / "t.parquet", record(messages=messages(SOURCE, (prose,), ()), best_round=1))
    assert trains(only(path, chat), chat) == [f"{prose}<|im_end|>"]
    assert trains(only(path, compact), compact) == ["class ModelNew: one\n<|end|>"]


def test_feedback_is_as_long_as_in_a_rollout(chat, tmp_path):
    first, *rest = FEEDBACK[1].splitlines()
    row = only(write(tmp_path / "t.parquet", record()), chat, feedback_tokens=chat.count(first))
    text = chat.tokenizer.decode(row.tokens.tolist())
    assert fitted([first, *rest], chat.count(first), chat.count) == first
    assert first in text and not any(line in text for line in rest)


@pytest.mark.parametrize(
    ("options", "turns"),
    [({}, [0, 1, 2]), ({"loss_on": "until_best"}, [0, 1]), ({"loss_on": "best"}, [1])],
)
def test_the_loss_is_on_all_turns_those_until_the_best_or_the_best(options, turns, chat, tmp_path):
    row = only(write(tmp_path / "t.parquet", record(PROMPT)), chat, **options)
    assert trains(row, chat) == [f"{ANSWERS[turn]}<|im_end|>" for turn in turns]
    assert row.trains[-1], "what follows the last token that trains would be computed for nothing"


def test_the_loss_may_be_on_what_is_right_alone(chat, tmp_path):
    said = {"reasons": ["wrong_values", "not_judged", "faster"], "speedups": [None, None, 1.5]}
    row = only(write(tmp_path / "t.parquet", record(PROMPT, **said)), chat, loss_on="right")
    assert trains(row, chat) == [f"{ANSWERS[turn]}<|im_end|>" for turn in (1, 2)]
    data = load(write(tmp_path / "u.parquet", record(PROMPT, **said), record(PROMPT)), chat, loss_on="right")
    assert len(data.train) == 1 and data.notes == {"without a turn to train on (sft.loss_on=right)": 1}
    with pytest.raises(DrKernelError, match="'speedups': found 1, expected 3"):
        load(write(tmp_path / "v.parquet", record(PROMPT, reasons=["faster"], speedups=[1.5])), chat)
    with pytest.raises(DrKernelError, match="'reasons': found 1, expected 3"):
        load(write(tmp_path / "w.parquet", record(PROMPT, reasons=["faster"], speedups=[1.5] * 3)), chat)


def test_the_loss_may_be_on_feedback_too(chat, tmp_path):
    row = only(write(tmp_path / "t.parquet", record(PROMPT)), chat, loss_on_feedback=True)
    (text,) = trains(row, chat)
    assert text.startswith(ANSWERS[0]) and all(part in text for part in (*FEEDBACK, *ANSWERS)) and PROMPT not in text


def test_without_a_best_turn_a_record_trains_where_all_turns_do(chat, tmp_path):
    path = write(tmp_path / "t.parquet", record(PROMPT, best_round=0), record(PROMPT))
    assert len(load(path, chat).train) == 2
    data = load(path, chat, loss_on="best")
    assert len(data.train) == 1 and data.notes == {"without a turn to train on (sft.loss_on=best)": 1}


def test_longer_ones_are_dropped_or_cut_and_counted(chat, tmp_path):
    path = write(
        tmp_path / "t.parquet", record(PROMPT), record(PROMPT, messages=messages(PROMPT, ANSWERS[:1], ()), best_round=1)
    )
    short, long = sorted(len(row) for row in load(path, chat).train)
    dropped = load(path, chat, max_length=short)
    assert [len(row) for row in dropped.train] == [short] and dropped.notes == {"longer than sft.max_length": 1}
    cut = load(path, chat, max_length=long - 1, too_long="cut")
    assert sorted(len(row) for row in cut.train) == [short, long - 1] and cut.notes == {CUT: 1}
    assert any("1 cut at sft.max_length" in line for line in cut.lines())
    with pytest.raises(DrKernelError, match=r"nothing is left .*2 without a token to train on before"):
        load(path, chat, max_length=10, too_long="cut")


def test_records_with_thoughts_are_left_out_and_counted(chat, tmp_path):
    path = write(tmp_path / "t.parquet", *(record(PROMPT, enable_thinking=thinks) for thinks in (False, True)))
    data = load(path, chat)
    assert len(data.train) == 1 and [why for why in data.notes if "enable_thinking" in why]
    assert "1 left out, with enable_thinking" in data.lines()[1]
    assert len(load(path, load_prompts("chat", chat.tokenizer, thinking="kept")).train) == 2


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("<think>hmm</think>x", "with thoughts"),
        ("hmm</think>x", "with thoughts"),
        ("", "an empty"),
        (" \n", "an empty"),
    ],
)
def test_answers_with_thoughts_or_without_a_word_are_left_out_and_counted(answer, note, chat, tmp_path):
    bad = messages(PROMPT, (answer, *ANSWERS[1:]))
    data = load(write(tmp_path / "t.parquet", record(PROMPT), record(messages=bad)), chat)
    assert len(data.train) == 1 and any(note in line for line in data.lines()[1:])
    last = load(tmp_path / "t.parquet", chat, loss_on="best")
    assert len(last.train) == 2, "an answer that does not train does no harm"


def test_jsonl_is_read_like_parquet(chat, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(record(f"{PROMPT} {i}")) for i in range(2)) + "\n\n")
    write(tmp_path / "t.parquet", *(record(f"{PROMPT} {i}") for i in range(2)))
    assert load(tmp_path / "t.jsonl", chat).digest == load(tmp_path / "t.parquet", chat).digest
    (tmp_path / "t.parquet").unlink()
    assert len(load(tmp_path, chat).train) == 2
    for line, words in (
        ("{", r"t\.jsonl: line 1: not JSON"),
        ("[1]", r"line 1: found \[1\], expected an object"),
        ('{"prompt": "x"}', "line 1: found columns prompt; expected 'messages'"),
    ):
        (tmp_path / "t.jsonl").write_text(line)
        with pytest.raises(DrKernelError, match=words):
            load(tmp_path / "t.jsonl", chat)


def test_the_tasks_that_are_held_out_have_no_trajectory_that_trains(chat, tmp_path):
    codes = [f"{SOURCE}# {i}\n" for i in range(10)]
    records = [record(code, original_python_code=code) for code in codes for _ in range(3)]
    data = load(write(tmp_path / "t.parquet", *records), chat, held_out=0.15)
    assert (len(data.train), len(data.held_out)) == (24, 6), "two of ten tasks"
    assert not {row.tokens.tobytes() for row in data.train} & {row.tokens.tobytes() for row in data.held_out}
    assert sft_data.held_out({"a", "b"}, 0.001) == {"a"} and sft_data.held_out({"a"}, 0.5) == set()


def test_a_folder_is_all_its_files_by_name(chat, tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "b.parquet", record(PROMPT))
    write(tmp_path / "a.parquet", record())
    rows = load(tmp_path, chat).train
    singles = [only(path, chat) for path in (tmp_path / "a.parquet", tmp_path / "data" / "b.parquet")]
    assert [row.tokens.tolist() for row in rows] == [row.tokens.tolist() for row in singles]


def test_a_hub_data_set_is_read_like_a_file(chat, tmp_path, monkeypatch):
    import datasets

    made = datasets.Dataset.from_list([record(PROMPT)])
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": made} if name == "some/set" else None)
    row = only("hub:some/set", chat)
    assert row.tokens.tolist() == only(write(tmp_path / "t.parquet", record(PROMPT)), chat).tokens.tolist()
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": made.remove_columns("messages")})
    with pytest.raises(DrKernelError, match=r"hub:some/set, train: found columns .*; expected 'messages'"):
        load("hub:some/set", chat)


def test_of_a_hub_data_set_one_split_trains(chat, tmp_path, monkeypatch):
    import datasets

    parts = {split: datasets.Dataset.from_list([record(f"{PROMPT} {split}")]) for split in ("test", "train")}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"some/set": parts, "old": parts}[name])
    tokens = lambda row: row.tokens.tolist()
    for source, split in (
        ("some/set", "train"),
        ("some/set/train", "train"),
        ("some/set/test", "test"),
        ("old", "train"),
    ):
        alone = only(write(tmp_path / f"{split}.parquet", record(f"{PROMPT} {split}")), chat)
        assert tokens(only(f"hub:{source}", chat)) == tokens(alone), source
    with pytest.raises(DrKernelError, match=r"found no split 'dev'; expected one of test, train: hub:some/set/"):
        load("hub:some/set/dev", chat)
    del parts["train"]
    with pytest.raises(DrKernelError, match=r"hub:some/set: found no split 'train'; expected one of test"):
        load("hub:some/set", chat)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"messages": ...}, r"t\.parquet: found columns original_python_code.*; expected 'messages', list<\{role"),
        ({"messages": "text"}, r"t\.parquet: row 0: column 'messages': found 'text', expected list<\{role, content\}>"),
        ({"messages": [{"role": "user"}]}, r"row 0: column 'messages': found \[\{'role': 'user'\}\]"),
        ({"messages": messages(PROMPT)[:1]}, r"row 0: .*found the roles user; expected user, assistant"),
        ({"messages": messages(PROMPT)[1:]}, r"row 0: .*roles assistant, user.*; expected user, assistant"),
        ({"best_round": 4}, r"row 0: column 'best_round': found 4, expected at most 3"),
        ({"best_round": "two"}, r"row 0: column 'best_round': found 'two', expected a whole number"),
        ({"best_round": 1.7}, r"row 0: column 'best_round': found 1\.7, expected a whole number"),
        ({"best_round": float("nan")}, r"row 0: column 'best_round': found nan, expected a whole number"),
        ({"original_python_code": 3}, r"row 0: column 'original_python_code': found 3, expected text"),
        ({"enable_thinking": "false"}, r"row 0: column 'enable_thinking': found 'false', expected true or false"),
        ({"reasons": "ok", "speedups": [1.0]}, r"row 0: column 'reasons': found 'ok', expected a list of texts"),
        (
            {"reasons": ["ok"], "speedups": ["1"]},
            r"row 0: column 'speedups': found \['1'\], expected a list of numbers",
        ),
        ({"precision": "fp8"}, r"row 0: column 'precision': found 'fp8', expected one of auto"),
    ],
)
def test_a_damaged_record_is_named_with_what_was_found_and_expected(change, words, chat, tmp_path):
    with pytest.raises(DrKernelError, match=words):
        load(write(tmp_path / "t.parquet", record(**change)), chat)


def test_a_file_that_is_not_there_or_no_parquet_is_named(chat, tmp_path):
    (tmp_path / "x.parquet").write_text("no")
    for path, words in (
        (tmp_path / "x.parquet", r"not a parquet file.*expected a \.parquet or"),
        (tmp_path / "y.parquet", "no such file"),
    ):
        with pytest.raises(DrKernelError, match=words):
            load(path, chat)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DrKernelError, match=r"no \.parquet or \.jsonl file in the folder"):
        load(tmp_path / "empty", chat)


@dataclasses.dataclass(frozen=True)
class Played(Ranks):
    """Ranks of which this process plays all, one after the other."""

    others: tuple = ()

    def all_gather_object(self, make):
        return [*self.others, make()]


def test_ranks_share_the_tokenising_and_have_the_same_rows(chat, tmp_path):
    path = write(tmp_path / "t.parquet", *(record(f"{SOURCE}# {i}\n", best_round=1) for i in range(5)))
    taken = []
    keep = dataclasses.make_dataclass("Keep", [], bases=(Ranks,), frozen=True)
    keep.all_gather_object = lambda self, make: taken.append(make()) or [taken[-1]]
    load(path, chat, ranks=keep(rank=0, size=2))
    both = load(path, chat, ranks=Played(rank=1, size=2, others=tuple(taken)))
    assert len(taken[0]) == 3 and both.digest == load(path, chat).digest
