"""A run as one page: everything that a researcher wants to read, nothing that runs, and not too large."""

import base64
import json
import re
import zlib
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from drkernel.config.conversion import to_yaml
from drkernel.training import view
from drkernel.training.completions import SCHEMA
from drkernel.types import KernelTime, Verdict
from tests.configs import train_config
from tests.scaling.browser import CHROMIUM, chromium

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (apt-get install chromium)")
HOSTILE = "</script><img src=x onerror=window.hacked=1><!--<script>window.hacked=1</script>{{core}}&lt;\u2028"


def row(group: int, sample: int, turn: int, **changes) -> dict:
    profile = (KernelTime("kernel", 1, 2.5, True),)
    verdict = Verdict("ok", "faster", speedup=1.5, coverage=0.5, profile=profile, evidence={"timing": [1.0] * 999})
    said = {"status": "ok", "reason": "faster", "detail": "", "speedup": 1.5, "coverage": 0.5}
    texts = {"prompt": f"prompt {turn}", "completion": "import torch", "source": "import torch"}
    numbers = {"finished": True, "prompt_tokens": 7, "tokens": 3, "reward": float(group), "advantage": 0.5}
    place = {"task": f"family/task_{group}", "group": group, "sample": sample, "turn": turn}
    known = place | texts | said | numbers | {"verdict": json.dumps(verdict.to_dict()), "trained": 1.0, "why_not": ""}
    return known | changes


def make_run(folder: Path, steps: int, groups: int = 3, samples: int = 2, **changes) -> Path:
    (folder / "completions").mkdir(parents=True)
    for step in range(1, steps + 1):
        rows = [row(g, s, t, **changes) for g in range(groups) for s in range(samples) for t in range(2)]
        table = pyarrow.Table.from_pylist(rows, SCHEMA)
        parquet.write_table(table, folder / "completions" / f"step_{step:06d}.parquet", compression="zstd")
    parquet.write_table(table, folder / "completions" / f"validation_{steps:06d}.parquet")
    lines = [{"step": k, "reward": k / 10, "entropy": float("nan"), "lr": 1e-6} for k in range(1, steps + 1)]
    lines[-1] |= {"validation/reward": 1.0, "validation/reward/low": 0.5, "validation/reward/high": 1.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    best = {"checkpoint": f"checkpoints/step_{steps:06d}", "step": steps, "measure": "reward", "value": 1.0, "tasks": 4}
    best["ended_early"] = "validation at step 3 was poor"
    (folder / "best.json").write_text(json.dumps(best))
    (folder / "config.yaml").write_text("policy: {path: some/policy, lr: 1e-6}\nalgo: {advantage: trloo}\n")
    return folder


def page_of(run: Path, turns: int = view.TURNS) -> str:
    view.write(run, run / "view.html", turns)
    return (run / "view.html").read_text()


def hidden(text: str, number: int) -> list[dict]:
    found = re.search(f'id="file-{number}">(.*?)<', text)
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def with_text(groups: list[dict]) -> list[dict]:
    return [turn for group in groups for turn in group["turns"] if "text" in turn]


def test_every_turn_of_a_small_run_is_there_with_its_text(tmp_path):
    text = page_of(make_run(tmp_path / "run", steps=2))
    groups = hidden(text, 0)
    assert [group["task"] for group in groups] == ["family/task_0", "family/task_1", "family/task_2"]
    assert len(with_text(groups)) == 12 and len(with_text(hidden(text, 2))) == 12, "the validation, too"
    turn = groups[2]["turns"][1]
    assert turn["reward"] == 2.0 and turn["advantage"] == 0.5 and turn["text"]["prompt"] == "prompt 1"
    assert turn["text"]["profile"] == {"total": 2.5, "rows": [["kernel", 1, 2.5, True]]}
    assert "timing" not in turn["text"]["evidence"], "hundreds of numbers that no reader wants"


@pytest.mark.slow
def test_a_large_run_is_sampled_from_the_worst_group_to_the_best_and_says_so(tmp_path):
    run = make_run(tmp_path / "run", steps=60, groups=9, samples=6)
    said = view.write(run, run / "view.html", turns=400)
    text = (run / "view.html").read_text()
    files = [hidden(text, number) for number in range(61)]
    texts = [len(with_text(groups)) for groups in files]
    assert 200 <= sum(texts) <= 400 and sum(size > 0 for size in texts) == view.FILES and texts[0] and texts[-1]
    assert f"{sum(texts):,} of 6,588 completions with their texts" in said
    assert all(len(groups) == 9 and len(groups[0]["turns"]) == 12 for groups in files), "in short, all are there"
    more = page_of(run, turns=1600)
    shown = [group["group"] for group in hidden(more, 0) if with_text([group])]
    assert len(shown) == 1600 // 40 // 8 and {0, 8} <= set(shown) < set(range(9)), "four trajectories of two turns each"


def test_a_run_that_trains_has_a_page_too(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    for name in ("best.json", "config.yaml"):
        (run / name).unlink()
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    (run / "completions/step_000002.parquet.tmp").write_bytes(b"half")
    assert "1 steps, 24 of 24 completions" in view.write(run, run / "view.html")


@pytest.mark.parametrize(
    ("algo", "said"), [("trloo", "trloo"), ("gspo", "grpo, updates=4, ratio_level=turn_geometric, clip_low=0.0003")]
)
def test_an_algorithm_is_named_with_what_it_changes(tmp_path, algo, said):
    run = make_run(tmp_path / "run", steps=1)
    (run / "config.yaml").write_text(to_yaml(train_config(f"algo={algo}")))
    page = page_of(run)
    assert f'"algorithm": "{said}' in page or f'"algorithm":"{said}' in page


def test_a_page_goes_into_a_folder_that_is_made_for_it_or_the_error_says_why_not(tmp_path, capsys):
    run = make_run(tmp_path / "run", steps=1)
    out = tmp_path / "new" / "folder" / "page.html"
    assert view.main([str(run), "--out", str(out)]) == 0 and out.exists()
    (tmp_path / "file").write_text("")
    assert view.main([str(run), "--out", str(tmp_path / "file" / "page.html")]) == 2
    assert re.search(r"error: .*file/page\.html: .*; expected a file that can be written", capsys.readouterr().err)


def test_a_folder_without_steps_is_said_to_have_none_and_is_not_proposed(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").touch()
    assert view.main([str(tmp_path / "a")]) == 2
    assert "a/metrics.jsonl: found no steps; expected a run that has taken one" in capsys.readouterr().err
    assert view.main([str(tmp_path)]) == 2
    assert "such as" not in capsys.readouterr().err


def test_what_is_no_run_or_is_damaged_is_one_clear_line(tmp_path, capsys):
    assert view.main([str(tmp_path)]) == 2
    assert "metrics.jsonl: not found; expected the folder of a training run" in capsys.readouterr().err
    run = make_run(tmp_path / "run", steps=1)
    assert view.main([str(tmp_path)]) == 2
    assert f"folder of a training run, such as {run}" in capsys.readouterr().err
    (run / "completions/step_000001.parquet").write_bytes(b"nonsense")
    assert view.main([str(run)]) == 2
    assert "step_000001.parquet: found no table of completions" in capsys.readouterr().err


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def browser(tab):
    """The tab; whatever was done with it, it must not have complained or left the file."""
    tab.problems.clear(), tab.requests.clear()
    tab.size(1300, 900), tab.scheme("light")
    yield tab
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "about:"))] == []


@needs_browser
def test_the_way_from_a_curve_to_a_source(tmp_path, browser):
    page_of(run := make_run(tmp_path / "run", steps=3))
    browser.open(run / "view.html")
    titles = browser.run("[...document.querySelectorAll('.panel h3')].map(each => each.firstChild.textContent)")
    assert titles[:1] == ["Reward"] and "Learning rate" in titles and "Entropy" not in titles, "NaN is no curve"
    assert browser.run("document.querySelectorAll('.step-list tbody tr').length") == 4
    assert "Ended early: validation at step 3 was poor" in browser.run("document.querySelector('#top').textContent")
    browser.run("document.querySelector('.step-list a[href=\"#step_2\"]').click()")
    browser.wait("document.querySelector('.turn .code')")
    assert browser.run("document.querySelectorAll('a.call').length") == 12
    browser.run("document.querySelectorAll('a.call')[3].click()")
    browser.wait("document.querySelectorAll('a.call')[3].getAttribute('aria-current')")
    said = browser.run("document.querySelector('.turn').textContent")
    assert "Turn 2 of trajectory 1" in said and "prompt 1" in said and "Feedback that it read" in said
    browser.key("Escape")
    browser.wait("document.querySelector('.panels')")


@pytest.mark.slow
@needs_browser
def test_what_a_policy_wrote_is_text_and_nothing_else(tmp_path, browser):
    changes = dict.fromkeys(("task", "prompt", "completion", "source", "detail", "reason", "why_not"), HOSTILE)
    page_of(run := make_run(tmp_path / "run", steps=1, **changes))
    browser.open(run / "view.html", "#step_1")
    assert HOSTILE in browser.run("document.querySelector('.turn').textContent")
    browser.open(run / "view.html")
    assert browser.run("window.hacked") is None and not browser.run("document.querySelector('main img')")
