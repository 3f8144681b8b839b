import json

import pytest

from drkernel.scaling import records, solutions, study
from drkernel.tasks import load_tasks
from drkernel.types import DrKernelError, Task
from tests.scaling.test_study import TASKS, Judge

CODE = "class ModelNew:\n    pass  # {}\n"
KERNELBENCH = [
    Task(f"kernelbench/level{level}/{number}", "", level=level, info={"problem_id": number, "name": name})
    for level, number, name in ((1, 3, "Batched"), (1, 19, "ReLU"), (2, 3, "Conv_ReLU"), (2, 40, "Matmul"))
]


def fill(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)


def load(folder, tasks=()):
    """(task, trial, source) of each answer, and what was said."""
    said = []
    found = solutions.load(folder, tasks, said.append)
    return [(each.task, each.trial, each.source) for each in found], said


def test_a_run_of_kernelbench_is_read_in_the_order_of_its_problems(tmp_path):
    names = [(1, 3, 0), (1, 3, 1), (1, 19, 0), (2, 3, 0), (2, 40, 0)]
    fill(tmp_path, {f"level_{p}_problem_{n}_sample_{s}_kernel.py": CODE.format((p, n, s)) for p, n, s in names})
    results = {"3": {"sample_id": 0, "compiled": True, "correctness": True, "runtime": 1.0}}
    fill(tmp_path, {"eval_results.json": json.dumps(results), "generation_config.yaml": "level: 1\n"})
    fill(tmp_path, {"level_1_problem_3_sample_0_prompt.txt": "You write custom CUDA kernels", ".cache/x.py": "x"})
    expected = [(f"kernelbench/level{p}/{n}", s, CODE.format((p, n, s))) for p, n, s in names]
    assert load(tmp_path) == load(tmp_path, KERNELBENCH) == (expected, [])
    assert solutions.load(tmp_path)[1].origin == str(tmp_path / "level_1_problem_3_sample_1_kernel.py")


def test_several_runs_in_one_folder_do_not_hide_each_other(tmp_path):
    name = "level_2_problem_40_sample_0_kernel.py"
    fill(tmp_path, {f"level1_tries/{name}": CODE.format("a"), f"other/{name}": CODE.format("b")})
    task = "kernelbench/level2/40"
    assert load(tmp_path)[0] == [(task, 0, CODE.format("a")), (task, 1, CODE.format("b"))]


def test_samples_in_nested_folders_are_told_apart(tmp_path):
    fill(tmp_path, {f"level2/gpt/problem_3/sample_{n}/kernel.py": CODE.format(n) for n in (0, 1)})
    assert load(tmp_path)[0] == [("kernelbench/level2/3", n, CODE.format(n)) for n in (0, 1)]


def test_the_hubs_validation_set_is_found_by_level_and_number(tmp_path):
    tasks = [Task("kernelbench_level2_validation/7", "", level=2, info={"problem_id": 3})]
    fill(tmp_path, {"level_2_problem_3_sample_0_kernel.py": CODE})
    assert load(tmp_path, tasks)[0] == [("kernelbench_level2_validation/7", 0, CODE)]


@pytest.mark.parametrize(
    "name",
    [
        "level1/19_ReLU.py",
        "level1/19.py",
        "19_ReLU.py",
        "relu.py",
        "kernelbench/level1/19.py",
        "kernelbench__level1__19.py",
        "deeper/level1/19.py",
    ],
)
def test_files_may_be_named_after_tasks(tmp_path, name):
    fill(tmp_path, {name: CODE})
    assert load(tmp_path, KERNELBENCH) == ([("kernelbench/level1/19", 0, CODE)], [])


def test_handwritten_and_generated_tasks_are_found_by_name(tmp_path):
    tasks = load_tasks("handwritten", split="test") + load_tasks("generated", split="test", count=5)
    generated = tasks[-1].id
    fill(tmp_path, {"masked_softmax.py": CODE, "level3/06_selective_scan.py": CODE, f"{generated}.py": CODE})
    fill(tmp_path, {"masked_softmax_sample_4.py": CODE, "level1/07.py": CODE})
    found, said = load(tmp_path, tasks)
    named = ("level1/argmax_magnitude", "level3/selective_scan", "level1/masked_softmax", "level1/masked_softmax")
    assert sorted(task for task, _, _ in found) == sorted([generated, *(f"handwritten/{name}" for name in named)])
    assert ("handwritten/level1/masked_softmax", 4, CODE) in found
    assert not said


def test_a_name_that_fits_two_tasks_is_not_guessed(tmp_path):
    fill(tmp_path, {"3.py": CODE, "level2/3.py": CODE})
    found, said = load(tmp_path, KERNELBENCH)
    assert found == [("kernelbench/level2/3", 0, CODE)]
    assert said == [f"passed over: {tmp_path}/3.py: '3' may be kernelbench/level1/3, kernelbench/level2/3"]


def test_json_comes_as_tasks_with_sources_or_as_records(tmp_path):
    one, many = CODE.format(1), CODE.format(2)
    fill(tmp_path, {"a.json": json.dumps({"kernelbench/level1/19": one, "Matmul": [one, many]})})
    records = [
        {"task_id": "level_1_problem_3", "code": one, "sample_id": 5},
        {"level": 2, "problem_id": 3, "code": many},
    ]
    fill(tmp_path, {"b.json": json.dumps(records), "c.jsonl": json.dumps({"task": "any/id", "source": one}) + "\n\n"})
    assert load(tmp_path, KERNELBENCH) == (
        [
            ("kernelbench/level1/19", 0, one),
            ("kernelbench/level2/40", 0, one),
            ("kernelbench/level2/40", 1, many),
            ("kernelbench/level1/3", 5, one),
            ("kernelbench/level2/3", 0, many),
            ("any/id", 0, one),
        ],
        [],
    )
    assert len(solutions.load(tmp_path / "a.json", KERNELBENCH)) == 3


def test_the_results_of_a_study_can_be_judged_again(tmp_path):
    rows = [{"task": "a/b", "trial": 0, "call": n, "source": s, "verdict": {}} for n, s in enumerate((CODE, None, "x"))]
    fill(tmp_path, {"results.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    assert load(tmp_path) == ([("a/b", 0, CODE), ("a/b", 1, None), ("a/b", 2, "x")], [])


def test_markdown_gives_its_last_block_of_code(tmp_path):
    fill(tmp_path, {"a.json": json.dumps({"t": f"First\n```python\nx\n```\nthen\n```python\n{CODE}```\nDone."})})
    assert load(tmp_path)[0] == [("t", 0, CODE)]


KERNEL = "class ModelNew:\n    pass\n"
USAGE = "```python\ny = ModelNew()(x)\n```\n"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (f'"""How it is called:\n\n{USAGE}"""\n{KERNEL}', None),
        (f'"""How it is called:\n\n{USAGE}"""\n{KERNEL}x = (\n', None),
        (f"The kernel:\n```python\n{KERNEL}```\nand how it is called:\n{USAGE}", KERNEL),
        (f"Only this:\n{USAGE}", "y = ModelNew()(x)\n"),
    ],
    ids=["in a docstring", "in a docstring of what does not parse", "after the kernel", "alone"],
)
def test_a_block_that_shows_how_a_kernel_is_called_is_not_taken_for_it(tmp_path, text, source):
    fill(tmp_path, {"softmax.py": text})
    assert load(tmp_path, [Task("set/softmax", "")]) == ([("set/softmax", 0, text if source is None else source)], [])


def test_what_is_broken_is_told_and_the_rest_is_read(tmp_path):
    fill(tmp_path, {"level1/19.py": CODE, "level1/3.py": b"\xff\xfe", "level2/3.py": " \n", "notes.py": CODE})
    fill(
        tmp_path,
        {"a.json": "{", "b.json": json.dumps([{"source": CODE}, {"task": "t"}, 7, {"task": "t", "code": CODE}])},
    )
    fill(tmp_path, {"c.jsonl": '{"task": "u", "source": "x"}\n{"task":\n{"task": "u", "source": "y"}\n'})
    found, said = load(tmp_path, KERNELBENCH)
    assert [(task, trial) for task, trial, _ in found] == [("t", 0), ("u", 0), ("u", 1), ("kernelbench/level1/19", 0)]
    told = [line.removeprefix(f"passed over: {tmp_path}/") for line in said]
    assert [line.split(":")[0] for line in told] == [
        *("a.json", "b.json", "b.json", "b.json", "c.jsonl", "level1/3.py", "level2/3.py", "notes.py"),
    ]
    assert "entry 0: no task" in told[1] and "entry 2: expected an object" in told[3] and "line 2" in told[4]
    assert "utf-8" in told[5] and told[6:] == [
        "level2/3.py: it is empty",
        "notes.py: none of the study's tasks has such a name",
    ]


def test_a_folder_without_answers_is_an_error(tmp_path):
    with pytest.raises(DrKernelError, match="no such folder or file"):
        solutions.load(tmp_path / "none")
    with pytest.raises(DrKernelError, match="no solutions found"):
        solutions.load(tmp_path)


def test_trials_of_a_task_are_distinct(tmp_path):
    fill(tmp_path, {"level1/19.py": CODE, "x/level_1_problem_19_sample_0_kernel.py": CODE})
    fill(
        tmp_path,
        {"y/level_1_problem_19_sample_0_kernel.py": CODE, "z.json": json.dumps({"kernelbench/level1/19": CODE})},
    )
    assert sorted(trial for _, trial, _ in load(tmp_path)[0]) == [0, 1, 2, 3]


def test_shards_judge_each_their_part_and_count_what_is_missing_in_all(tmp_path):
    given = [solutions.Solution(*each, "here") for each in (("set/0", 0, "2 3"), ("set/1", 0, "4"), ("set/2", 0, "5"))]
    judge = Judge()
    for number in (0, 1):
        told, path = [], tmp_path / f"{number}.jsonl"
        options = {"label": "theirs", "log": told.append, "shard": (number, 2)}
        study.judge_solutions(TASKS[:4], given, judge, path, **options)
        assert told == ["1 of 4 tasks have no solution; they are not counted"]
        assert {record.task for record in records.read(path)} == ({"set/0", "set/2"}, {"set/1"})[number]
