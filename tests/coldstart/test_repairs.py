"""Second turns after a policy's own mistakes, from a study of it."""

import json

import pytest
from pyarrow import parquet

from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.repairs import main
from drkernel.policy.canonical import canonical
from drkernel.policy.prompts import CanonicalPrompts
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.scaling.records import Record, pack, write
from drkernel.tasks import generate
from drkernel.types import Verdict

WRONG = "def forward(self, in0):\n    return own(in0)\n"


@pytest.fixture
def study(tmp_path):
    """One task with a right and a wrong answer, and one whose answer has no end."""
    tasks = generate("train", 2, 3, generator="graphs", families=["mlp"])
    tokenizer = train_tokenizer([WRONG] * 100, 300)
    tokenizer.save_pretrained(tmp_path / "policy")
    prompts = CanonicalPrompts(tokenizer)

    def record(task, call, status, finished=True):
        verdict = Verdict(status, "runtime_error", "NameError: own")
        answer = pack([*prompts.completion(WRONG)])
        counts = {"prompt_tokens": 1, "tokens": 1, "generate_s": 0.0, "judge_s": 0.0, "started": 0.0}
        names = {"family": "", "level": None, "split": "train", "strategy": "single", "model": "", "answer": answer}
        places = {"trial": call, "chain": 0, "turn": 0, "call": call, "shown": (), "source": "", "finished": finished}
        return Record(task=task.id, verdict=verdict, **counts, **names, **places)

    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "config.yaml").write_text(f"policy: {{path: {tmp_path / 'policy'}, prompts: canonical}}\n")
    lines = [json.dumps({"id": t.id, "source": t.source, "small": t.small, "info": {}}) + "\n" for t in tasks]
    (folder / "tasks.jsonl").write_text("".join(lines))
    records = [
        record(tasks[0], 0, "invalid"),
        record(tasks[0], 1, "ok"),
        record(tasks[1], 0, "invalid", finished=False),
    ]
    write(folder / "results.jsonl", records)
    return folder, tasks[0]


def test_a_wrong_answer_is_followed_by_what_the_judge_said_and_the_answer_by_lines(study, tmp_path):
    folder, task = study
    assert main([str(folder), "--out", str(tmp_path / "out.parquet")]) == 0
    (row,) = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    form = canonical(task.source)
    said = [message["content"] for message in row["messages"]]
    assert said == [form.text, WRONG, "error: runtime_error: NameError: own", form.completion(by_lines(task))]
    assert (row["reasons"], row["best_round"]) == (["runtime_error", "not_judged"], 2)


def test_a_folder_that_is_no_study_is_named(tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "out.parquet")]) == 2
    assert f"{tmp_path}: found no config.yaml; expected the folder of a study" in capsys.readouterr().err
