"""Free programs: sources that run at both sizes, say the same at each seed, and are answered from their lines."""

import hashlib
import re
from contextlib import suppress
from itertools import islice, product
from random import Random

import pytest
import torch

from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.solutions import solutions
from drkernel.policy.canonical import canonical
from drkernel.tasks import generate
from drkernel.tasks.generators import programs
from drkernel.tasks.generators.programs import draw
from drkernel.tasks.generators.programs.draw import FAMILIES, _tells
from drkernel.tasks.generators.programs.program import Program, Unfit
from drkernel.tasks.module import Reference
from drkernel.tasks.splits import split_of
from drkernel.types import DrKernelError


@pytest.fixture(scope="module")
def tasks():
    return list(islice(programs.stream("train", 3), 60))


def test_a_seed_names_a_stream(tasks):
    assert [task.source for task in islice(programs.stream("train", 3), 8)] == [task.source for task in tasks[:8]]
    assert [task.source for task in islice(programs.stream("train", 4), 8)] != [task.source for task in tasks[:8]]
    assert len({task.id for task in tasks}) == len(tasks)


def test_families_come_in_turn_and_steps_belong_to_one_split(tasks):
    assert {task.family for task in tasks[:4]} == set(FAMILIES)
    assert all(split_of(task.info["key"]) == "train" for task in tasks)
    assert all(split_of(task.info["key"]) == "test" for task in islice(programs.stream("test", 3), 8))
    with pytest.raises(DrKernelError, match="free_nothing"):
        next(programs.stream("train", 3, ["free_nothing"]))


def test_a_generator_draws_them():
    tasks = generate("train", 8, 0, ["free_formulas"], ["float32", "bfloat16"], generator="programs_55")
    assert {task.family for task in tasks} == {"free_formulas"}
    assert {task.info["dtype"] for task in tasks} == {"float32", "bfloat16"}
    with pytest.raises(DrKernelError, match=r"tasks\.families: unknown task family 'softmax'; expected one of free_"):
        generate("train", 1, 0, ["softmax"], generator="programs_55")
    (right,) = solutions(next(task for task in tasks if by_lines(task)))
    assert right.kind == "partial"


@pytest.mark.slow
def test_the_second_edition_has_further_steps_and_leaves_the_first_as_it_was():
    digest = hashlib.sha256(
        "".join(task.source for task in islice(programs.stream("train", 3), 20)).encode()
    ).hexdigest()
    assert digest.startswith("d60191e7951e")
    tasks = generate("train", 40, 0, generator="programs")
    earlier = {step.__name__ for sorts in draw.EDITIONS[1].values() for steps in sorts for step in steps}
    drawn = {step for task in tasks for step in task.info["composition"]}
    assert len(drawn - earlier) > 8
    assert sum(by_lines(task) is not None for task in tasks) >= 30


STEPS = {step for kinds in draw.EDITIONS.values() for sorts in kinds.values() for steps in sorts for step in steps}
STEPS |= {step for steps in draw._ENDS.values() for step in steps}


@pytest.mark.parametrize("step", sorted(STEPS, key=lambda step: step.__name__), ids=lambda step: step.__name__)
def test_a_step_takes_values_of_any_rank_or_does_not_fit(step):
    for rank, seed in product(range(6), range(5)):
        program = Program(Random(seed), "float32")
        shape = [program.size(f"size{place}", (32 * (place + 1), 2 + place)) for place in range(rank or 1)]
        program.input(shape, "randn")
        if not rank:
            program.let(f"{program.value.name}.sum()", ())
        with suppress(Unfit, AssertionError):
            assert step(program) is not None


def test_sizes_are_those_of_the_module_and_small_ones_fit(tasks):
    for task in tasks:
        reference = Reference(task, task.small)
        assert task.small.keys() <= reference.constants.keys()
        outputs = reference.forward(reference.model(seed=0).eval(), reference.inputs(seed=0))
        parts = outputs if isinstance(outputs, tuple) else (outputs,)
        assert all(part.isfinite().all() for part in parts)


def test_one_number_is_not_two_sizes(tasks):
    for task in tasks:
        large = [number for number in Reference(task).constants.values() if number >= 100]
        assert len(large) == len(set(large))


def test_outputs_are_no_matter_of_rounding():
    one, noise = torch.linspace(-1, 1, 8), 1e-3 * torch.ones(8)
    assert _tells(one, -one, one, 10.0)
    assert not _tells(one, one, one, 10.0), "the same whatever the inputs"
    assert not _tells(one, -one, one + noise, 10.0)
    assert not _tells(one, -one, one, 0.5), "too large"


def test_every_input_is_read_and_the_constructor_takes_the_sizes(tasks):
    for task in tasks:
        names = re.search(r"def forward\(self, (.*)\):", task.source)[1].split(", ")
        body = task.source.partition("def forward")[2].partition("\n")[2].partition("def get_inputs")[0]
        assert all(re.search(rf"(?<![\w.]){name}\b", body) for name in names)
        assert not set(re.findall(r"\w+", body)) & set(task.small), "sizes come from the tensors"


@pytest.mark.slow
def test_they_have_a_canonical_form_and_mostly_an_answer(tasks):
    forms = [canonical(task.source) for task in tasks]
    assert sum(form.text.startswith("def forward") for form in forms) >= 58
    assert sum(by_lines(task) is not None for task in tasks) >= 50


def test_some_have_16_bits_and_say_so(tasks):
    narrow = [task for task in tasks if task.info["dtype"] != "float32"]
    assert 0 < len(narrow) < 20
    assert all(task.precision == "low" and task.info["dtype"] in task.source for task in narrow)
    assert {task.info["dtype"] for task in islice(programs.stream("train", 3, dtype="float16"), 4)} == {"float16"}


@pytest.mark.slow
def test_blocks_repeat_modules_are_called_twice_and_values_are_needed_later():
    forms = [canonical(task.source).text for task in islice(programs.stream("train", 5, ["free_networks"]), 40)]
    calls = [re.findall(r" = self\.(m\d+)\(", form) for form in forms]
    assert any(len(names) > len(set(names)) for names in calls)
    assert sum(len(form.splitlines()) > 30 for form in forms) > 8
    reads = [{name: len(re.findall(rf"\b{name}\b", form)) for name in re.findall(r"t\d+", form)} for form in forms]
    assert sum(max(counts.values(), default=0) > 3 for counts in reads) > 8
