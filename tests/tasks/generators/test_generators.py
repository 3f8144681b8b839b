import dataclasses
import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest
import torch

from drkernel.tasks import generators, load_tasks
from drkernel.tasks.generators import GENERATORS, generate
from drkernel.tasks.generators.operators import OPERATORS
from drkernel.tasks.generators.operators.families import DTYPES, FAMILIES, is_sound
from drkernel.tasks.generators.operators.layouts import LAYOUTS
from drkernel.tasks.generators.programs.draw import EDITIONS
from drkernel.tasks.generators.programs.steps.pairs import loss
from drkernel.tasks.module import Reference
from drkernel.tasks.splits import SPLITS, split_of
from drkernel.tasks.written import read_written
from drkernel.types import DrKernelError, Task


def output(task: Task, constants: dict[str, int], seed: int = 0) -> torch.Tensor:
    reference = Reference(task, constants)
    return reference.forward(reference.model(0), reference.inputs(seed))


@pytest.fixture(scope="module")
def sample() -> list[Task]:
    return generate("train", 6 * len(FAMILIES), 0)


@pytest.mark.slow
def test_tasks_are_the_same_in_another_process():
    code = "from drkernel.tasks.generators import generate; print([t.digest for t in generate('test', 30, 5)])"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([task.digest for task in generate("test", 30, 5)])


def test_a_longer_draw_begins_with_the_shorter_one_and_repeats_nothing():
    long = generate("train", 100, 3)
    assert long[:40] == generate("train", 40, 3)
    assert len({task.id for task in long}) == len({task.source for task in long}) == 100
    assert generate("train", 40, 4) != long[:40]


def test_no_composition_is_in_two_splits_and_every_family_is_in_each():
    found = {split: generate(split, 8 * len(FAMILIES), 0) for split in SPLITS}
    compositions = {split: {tuple(t.info["composition"]) for t in tasks} for split, tasks in found.items()}
    assert not compositions["train"] & compositions["test"]
    assert not compositions["train"] & compositions["validation"]
    assert not compositions["test"] & compositions["validation"]
    for split, tasks in found.items():
        assert {task.family for task in tasks} == set(FAMILIES)
        assert all(task.split == split for task in tasks)


def test_the_split_of_a_composition_does_not_depend_on_its_shape_or_style():
    for task in generate("test", 60, 1) + generate("train", 60, 1):
        assert split_of("+".join(task.info["composition"])) == task.split


def test_splits_are_about_eighty_ten_ten():
    counts = Counter(split_of(f"key {i}") for i in range(5000))
    assert [round(counts[split] / 5000, 1) for split in SPLITS] == [0.8, 0.1, 0.1]


def test_there_are_many_families_and_many_compositions():
    tasks = generate("train", 2000, 0)
    assert len(FAMILIES) >= 14
    assert len({tuple(task.info["composition"]) for task in tasks}) > 1500


def test_every_task_runs_at_its_small_size_on_finite_values(sample):
    for task in sample:
        assert torch.isfinite(output(task, task.small)).all(), task.id


@pytest.mark.slow
def test_every_small_constant_can_change_a_little(sample):
    for task in sample[: 2 * len(FAMILIES)]:
        for name, value in task.small.items():
            for other in (value + 1, max(value - 3, 1), max(3 * value // 4, 1)):
                assert torch.isfinite(output(task, {**task.small, name: other})).all(), (task.id, name, other)


@pytest.mark.slow
def test_outputs_depend_on_the_inputs_and_are_no_constant(sample):
    for task in sample:
        first, second = output(task, task.small, 0), output(task, task.small, 1)
        scale = first.norm() + 1e-12
        assert (first - second).norm() > 1e-3 * scale, task.id
        if first.numel() > 1:
            assert (first - first.mean()).norm() > 1e-3 * scale, task.id


def test_outputs_are_not_an_input_handed_through(sample):
    for task in sample:
        reference = Reference(task, task.small)
        inputs = reference.inputs(0)
        found = reference.forward(reference.model(0), inputs)
        same = [x for x in inputs if x.shape == found.shape and x.is_floating_point()]
        assert not any(torch.allclose(x, found, rtol=1e-3) for x in same), task.id


def test_weights_matter(sample):
    for task in sample:
        reference = Reference(task, task.small)
        model, inputs = reference.model(0), reference.inputs(0)
        before = reference.forward(model, inputs)
        for name, parameter in model.named_parameters():
            with torch.no_grad():
                parameter.add_(torch.rand_like(parameter))
            after = reference.forward(model, inputs)
            assert not torch.allclose(before, after), (task.id, name)
            before = after


def test_sizes_suit_a_gpu_and_the_interpreter(sample):
    for task in sample:
        assert task.small.keys() == task.info["shape"].keys() == Reference(task).constants.keys()
        shapes = [x.numel() for x in Reference(task, task.small).inputs(0)]
        assert sum(shapes) < 50_000, task.id
        assert max(task.info["shape"].values()) >= 1024 or task.family == "pool", task.id


def test_sources_are_short(sample):
    lengths = sorted(len(task.source) for task in sample)
    assert lengths[len(lengths) // 2] < 600
    assert lengths[-1] < 1000


def test_styles_vary():
    tasks = generate("train", 400, 0, ["elementwise"])
    sources = "".join(task.source for task in tasks)
    assert all(text in sources for text in ("F.relu(", "torch.relu(", "nn.ReLU()", ".tanh()", "nn.Tanh()"))
    assert len({tuple(task.small) for task in tasks}) >= 5


@pytest.mark.parametrize(
    "composition",
    [
        ("sigmoid", "relu"),
        ("square", "abs"),
        ("relu", "relu"),
        ("leaky_relu", "relu"),
        ("abs", "norm"),
        ("add_input", "mul_input"),
        ("tanh", "clamp"),
        ("softmax", "tanh"),
        ("sum", "sigmoid"),
        ("relu", "sum", "abs"),
        ("tanh", "max"),
        ("add_input", "dot"),
    ],
)
def test_degenerate_compositions_are_unsound(composition):
    assert all(name in OPERATORS for name in composition)
    assert not is_sound(composition)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev", 1, 0), "unknown split 'dev'"),
        (("train", 1, 0, ["convolution"]), "unknown task family 'convolution'"),
        (("train", 1, 0, []), "families is empty"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(DrKernelError, match=message):
        generate(*arguments)


STREAMS = {
    ("train", 0): "f4e17566a4c81fba",
    ("train", 7): "5f30c57a251470fa",
    ("validation", 0): "a007a9a4122fa01f",
    ("validation", 7): "7522a931715872f0",
    ("test", 0): "21c7d5374bd20258",
    ("test", 7): "9240fb62b6bc4a71",
}
"""Digests of the first 120 tasks of `operators`. They never change: what is new states a later edition in `since`."""


@pytest.mark.parametrize(("split", "seed"), STREAMS)
def test_operators_gives_the_tasks_that_it_always_gave(split, seed):
    assert stream(generate(split, 120, seed, generator="operators")) == STREAMS[split, seed]


def stream(tasks) -> str:
    text = "".join(f"{task.id}{task.source}{sorted(task.small.items())}{task.info}" for task in tasks)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_an_operator_or_layout_of_a_later_edition_is_drawn_by_that_edition_alone(monkeypatch):
    new = dataclasses.replace(OPERATORS["sigmoid"], name="new", since=2)
    everywhere = {name: extended(family) for name, family in FAMILIES.items()}
    monkeypatch.setitem(OPERATORS, "new", new)
    monkeypatch.setitem(LAYOUTS, "new", dataclasses.replace(LAYOUTS["flat"], since=2))
    monkeypatch.setitem(GENERATORS, "later", generators._operators(2))
    for name, family in everywhere.items():
        monkeypatch.setitem(FAMILIES, name, family)
    assert stream(generate("train", 120, 0, generator="operators")) == STREAMS["train", 0]
    later = generate("train", 120, 0, generator="later")
    assert any("new" in task.info["composition"] for task in later)
    assert any(task.info["layout"] == "new" for task in later)


def extended(family):
    """A family that may also draw the operator and, where its tasks are flat, the layout `new`, before all others."""
    places = {name: ("new", *getattr(family, name)) for name in ("pre", "post") if getattr(family, name)}
    if "flat" in family.layouts:
        places["layouts"] = ("new", *family.layouts)
    return dataclasses.replace(family, **places)


def test_the_other_dtypes_of_an_edition_keep_their_tasks_too(monkeypatch):
    before = {dtype: stream(generate("train", 60, 0, dtypes=[dtype], generator="operators")) for dtype in DTYPES}
    monkeypatch.setitem(OPERATORS, "new", dataclasses.replace(OPERATORS["sigmoid"], name="new", since=2))
    monkeypatch.setitem(GENERATORS, "later", generators._operators(2))
    for name, family in list(FAMILIES.items()):
        monkeypatch.setitem(FAMILIES, name, extended(family))
    monkeypatch.setitem(LAYOUTS, "new", dataclasses.replace(LAYOUTS["flat"], since=2))
    assert {
        dtype: stream(generate("train", 60, 0, dtypes=[dtype], generator="operators")) for dtype in DTYPES
    } == before
    for dtype in DTYPES:
        later = load_tasks("generated", split="train", count=120, dtypes=[dtype], generator="later")
        assert any("new" in task.info["composition"] for task in later)
        assert {task.info.get("dtype", "float32") for task in later} == {dtype}


def test_a_family_that_is_named_twice_has_two_shares():
    tasks = generate("train", 300, 0, ["softmax", "softmax", "scan"])
    assert sum(task.family == "softmax" for task in tasks) > 1.5 * sum(task.family == "scan" for task in tasks)


def test_an_unknown_generator_is_refused_and_the_error_names_those_that_there_are():
    with pytest.raises(DrKernelError, match=r"found graph; expected one of operators, graphs, programs, "):
        generate("train", 1, 0, generator="graph")


@pytest.mark.parametrize("named", [(1, "operators"), (2, "graphs"), (3, "programs_55"), (4, "programs")])
@pytest.mark.parametrize("kind", [int, str])
def test_a_number_of_former_days_is_refused_with_the_name(named, kind):
    number, name = named
    with pytest.raises(DrKernelError, match=rf"found {number}, which is called {name} now; expected {name}$"):
        generators.expect_known(kind(number))


@pytest.mark.slow
def test_a_number_behind_a_name_says_how_much_there_is_to_draw_from():
    written_by = lambda name: [task for task in read_written() if task.family in GENERATORS[name].families()]
    for name in ("written_1670", "written_850"):
        assert f"written_{len(written_by(name))}" == name
    assert len(written_by("written")) == len(read_written())
    kinds = EDITIONS[1].values()
    assert f"programs_{len({step for sorts in kinds for steps in sorts for step in steps} | {loss})}" == "programs_55"
