"""`sft.data` of several sources: what a weight is, what comes of each, what is refused, what a run makes of it."""

import json

import pytest

from drkernel.config.sft import weights
from drkernel.policy import load_prompts
from drkernel.training.sft_data import held_out
from drkernel.training.sft_sources import sources
from drkernel.types import DrKernelError
from tests.training.chat_policy import chat_policy, chat_tokenizer
from tests.training.test_sft import config_of, launch, metrics, succeed
from tests.training.test_sft import weights as policy_of
from tests.training.test_sft_data import SOURCE, load, record, write


@pytest.fixture(scope="module")
def chat():
    return load_prompts("chat", chat_tokenizer())


def of_tasks(path, *numbers: int) -> str:
    """A file with one trajectory of each task."""
    codes = [f"{SOURCE}# {number}\n" for number in numbers]
    return write(path, *(record(code, original_python_code=code) for code in codes))


@pytest.fixture
def two(tmp_path) -> tuple[str, str]:
    return of_tasks(tmp_path / "a.parquet", *range(6)), of_tasks(tmp_path / "b.parquet", *range(6, 10))


def tokens(rows) -> list[bytes]:
    return [row.tokens.tobytes() for row in rows]


def test_rows_come_source_by_source_with_a_count_and_a_weight_of_each(two, chat):
    a, b = two
    mixed = load({a: 1.0, b: 0.25}, chat)
    assert tokens(mixed.train) == tokens(load(a, chat).train) + tokens(load(b, chat).train)
    found = [(part.source.name, part.source.weight, part.train) for part in mixed.parts]
    assert found == [("a", 1.0, 6), ("b", 0.25, 4)]
    assert mixed.lines()[1:] == [
        "a: 6 trajectories train (weight 1, about 6 in an epoch), 0 are held out",
        "b: 4 trajectories train (weight 0.25, about 1 in an epoch), 0 are held out",
    ]
    assert tokens(load([a, b], chat).train) == tokens(mixed.train)


def test_of_each_source_some_tasks_are_held_out_and_train_in_none(two, chat, tmp_path):
    a, b = two
    both = of_tasks(tmp_path / "c.parquet", *range(10))
    data = load([a, b, both], chat, held_out=0.1)
    assert all(part.held_out for part in data.parts) and len(data.train) + len(data.held_out) == 20
    assert not {*tokens(data.train)} & {*tokens(data.held_out)}
    counts = [part.held_out for part in data.parts]
    assert len(data.held_out) == sum(counts), "in the order of the sources"
    assert {*tokens(data.held_out[: counts[0]])} <= {*tokens(load(a, chat).train)}
    assert len(held_out({"a", "b"}, 0.1)) == 1


def test_names_are_the_shortest_that_tell_sources_apart(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        of_tasks(tmp_path / folder / "train.parquet", 1)
    of_tasks(tmp_path / "z.parquet", 1)
    places = [tmp_path / "x" / "train.parquet", tmp_path / "y", tmp_path / "y" / "more.jsonl", "hub:o/set"]
    places[2] = tmp_path / "z.parquet"
    assert [source.name for source in sources([*map(str, places)])] == ["train", "y", "z", "set"]
    trains = [str(tmp_path / folder / "train.parquet") for folder in ("x", "y")]
    assert [source.name for source in sources(trains)] == ["x/train", "y/train"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": 0}, r"sft\.data: a has the weight 0; expected a number above 0"),
        ({"a": -1.5}, r"sft\.data: a has the weight -1\.5; expected a number above 0"),
        ({"a": float("nan")}, r"sft\.data: a has the weight nan; expected"),
        ({"a": "much"}, r"sft\.data: a has the weight much; expected"),
        ({"a": True}, r"sft\.data: a has the weight True; expected"),
        ({"a": None}, r"sft\.data: a has the weight None; expected"),
        (["a", "b", "a"], r"sft\.data: found a 2 times; expected it once, with a weight: \{a: 2\}"),
        (["a", 3], r"sft\.data: found 3; expected a file, a folder or hub"),
        (3, r"sft\.data: found 3; expected a file, a folder or hub"),
        ([""], r"sft\.data: found ''; expected"),
    ],
)
def test_what_is_no_source_or_no_weight_is_refused(data, words):
    with pytest.raises(DrKernelError, match=words):
        weights(data)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("sft.data={a.parquet: 0}", r"config: sft\.data: a\.parquet has the weight 0; expected a number above 0"),
        ("sft.data=[a, a]", r"found a 2 times"),
        ("sft.data=[]", r"stage=sft without sft\.data"),
        ("sft.data={}", r"stage=sft without sft\.data"),
    ],
)
def test_they_are_refused_where_they_are_typed(typed, words):
    with pytest.raises(DrKernelError, match=words):
        config_of(typed)


def test_sources_and_weights_may_be_typed():
    assert config_of("sft.data={a.parquet: 1.0, hub\\:o/n: 0.25}").sft.data == {"a.parquet": 1.0, "hub:o/n": 0.25}
    assert config_of("sft.data=[a.parquet, hub:o/n]").sft.data == ["a.parquet", "hub:o/n"]


def test_a_source_that_is_missing_or_there_twice_is_named(two, tmp_path):
    a, b = two
    with pytest.raises(DrKernelError, match=r"sft\.data=/nowhere\.parquet: found no such file"):
        sources({a: 1.0, "/nowhere.parquet": 1.0})
    with pytest.raises(
        DrKernelError, match=r"a\.parquet is in .* and in .*; expected each row in one source; a weight"
    ):
        sources([a, str(tmp_path)])
    with pytest.raises(DrKernelError, match=r"o/n/train is in hub:o/n and in hub:o/n/train"):
        sources([a, b, "hub:o/n", "hub:o/n/train"])


def test_a_source_of_which_nothing_would_train_is_named_with_the_reasons(two, chat, tmp_path):
    a, _ = two
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(DrKernelError, match=r"sft\.data=.*none\.jsonl: nothing is left to train on \(it has no record"):
        load([a, str(tmp_path / "none.jsonl")], chat)
    thinks = write(tmp_path / "thinks.parquet", record(enable_thinking=True))
    with pytest.raises(DrKernelError, match=r"thinks\.parquet: nothing is left to train on \(1 with enable_thinking"):
        load([a, thinks], chat)
    with pytest.raises(DrKernelError, match=r"6 trajectories with weight 0\.01 are less than one in sft\.epochs=4"):
        load({a: 0.01}, chat)


@pytest.mark.slow
@pytest.mark.xdist_group("sft")
def test_a_run_on_two_sources_goes_on_exactly_is_that_of_two_ranks_and_keeps_to_its_weights(tmp_path):
    world = tmp_path
    chat_policy(world / "policy")
    few = of_tasks(world / "few.parquet", *range(4))
    whole = of_tasks(world / "trajectories.parquet", *range(4, 16))
    mixed = [f"sft.data={{{whole}: 0.5, {few}: 2}}"]
    said = succeed(launch(world, "mixed", *mixed))
    assert "few: 3 trajectories train (weight 2, about 6 in an epoch), 1 are held out" in " ".join(said.split())
    lines = metrics(world / "mixed")
    assert [line["step"] for line in lines] == list(range(8)), "5 + 6 rows of 2 epochs, 3 a step"
    assert {"held_out", "held_out/trajectories", "held_out/few"} < lines[7].keys()
    data = json.loads((world / "mixed" / "data.json").read_text())
    assert data["sources"][1] == {"name": "few", "weight": 2.0, "train": 3, "held_out": 1}

    succeed(launch(world, "mixed ended", *mixed, "sft.max_steps=4"))
    succeed(launch(world, "mixed ended", *mixed))
    assert metrics(world / "mixed ended") == lines and policy_of(world / "mixed ended") == policy_of(world / "mixed")

    succeed(launch(world, "mixed two", *mixed, "trainer.gpus=2"))
    for one, two in zip(lines, metrics(world / "mixed two"), strict=True):
        for key in one.keys() & {"loss", "held_out", "held_out/few", "tokens"}:
            assert two[key] == pytest.approx(one[key], rel=1e-4), key

    other = launch(world, "mixed", f"sft.data={{{whole}: 0.5, {few}: 1}}")
    assert other.wait(100) == 2 and "was made with sft.data={" in other.output.replace("\n", " ")
