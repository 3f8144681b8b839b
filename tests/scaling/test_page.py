import base64
import dataclasses
import itertools
import json
import re
import zlib
from pathlib import Path

import pytest

from drkernel.scaling import measures, page, page_figures, report, sections
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials, aligned
from drkernel.training.page import plain
from drkernel.types import KernelTime, Verdict
from tests.scaling import synthetic
from tests.scaling.browser import CHROMIUM, Browser, chromium

pytestmark = pytest.mark.xdist_group("page")  # one worker makes the study and starts the browser
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path (apt-get install chromium)")
HOSTILE = "</script><img src=x onerror=window.hacked=1><!--<script>window.hacked=1</script>{{core}}&lt;\u2028"


def runs(rows: list[Record]) -> dict[str, list[Record]]:
    return {name: [row for row in rows if row.strategy == name] for name in synthetic.STRATEGIES}


@pytest.fixture(scope="module")
def study() -> dict[str, list[Record]]:
    """One correct answer of the first run was never compared with torch.compile."""
    rows = synthetic.records(tasks=24)
    place = next(i for i, row in enumerate(rows) if row.strategy == "single" and row.verdict.ok)
    verdict = dataclasses.replace(rows[place].verdict, evidence={})
    return runs([*rows[:place], dataclasses.replace(rows[place], verdict=verdict), *rows[place + 1 :]])


@pytest.fixture(scope="module")
def file(study, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    first = next(iter(study.values()))[0].task
    path.write_text(page.render(study, "Three strategies", {first: "class Model: pass"}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def browser(tab: Browser):
    """The tab, wide and light; whatever was done with it, it must not have complained or left the file."""
    tab.problems.clear(), tab.requests.clear()
    tab.size(1300, 900), tab.scheme("light")
    yield tab
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.slow
def test_the_page_asks_nothing_of_the_network(file):
    text = file.read_text()
    assert "default-src 'none'" in text
    assert not any(word in text for word in ('src="', "url(", "@import", "https://"))
    assert text.count("http://") == text.count("http://www.w3.org/2000/svg")


def test_untrusted_text_cannot_end_a_script(study):
    row = study["single"][0]
    bad = dataclasses.replace(row, task=HOSTILE, family=HOSTILE, source=HOSTILE, model=HOSTILE)
    text = page.render({HOSTILE: [bad]}, HOSTILE)
    assert "<img" not in text and "<!--" not in text
    assert text.count("</script>") == text.count("<script") == 4  # the overview, its figures, the task, the program


def test_numbers_that_json_has_not_become_words():
    assert plain({"a": [float("nan"), (1.5, float("inf"))]}) == {"a": ["nan", [1.5, "inf"]]}


@needs_browser
def test_every_task_has_a_row_and_every_run_a_line(browser, file, study):
    browser.open(file)
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") == 24
    names = browser.run("[...document.querySelectorAll('.numbers tbody th')].map(th => th.childNodes[1].textContent)")
    assert names == list(study)
    assert browser.run("document.querySelectorAll('.chart path.curve').length") >= 3


def test_the_figures_of_the_page_are_what_the_tables_say(study, file):
    runs = aligned({name: Trials.of(rows) for name, rows in study.items()})
    softmax = {row.task for rows in study.values() for row in rows if row.family == "softmax"}
    packed = re.search('id="figures">(.*?)<', file.read_text())[1]
    found = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert found.keys() == {"", *(f"level={n}" for n in (1, 2, 3)), *(f"family={name}" for name in synthetic.FAMILIES)}
    for choice, chosen in (("", runs), ("family=softmax", {name: run.only(softmax) for name, run in runs.items()})):
        figures = found[choice]["runs"]
        for (number, run), view in itertools.product(enumerate(chosen.values()), measures.VIEWS):
            mine, compared = figures["compile"][number], run.comparable("compile")
            assert mine["tasks"] == len(compared.tasks) == len(run.tasks) - 1
            for axis, budgets in mine["budgets"].items():
                assert budgets[-1] == compared.reach(axis)
                ours = measures.curve(run, budgets, axis, 1.2, view, "compile")
                for place, each in zip(mine[view]["curves"][axis][2], ours, strict=True):
                    theirs = mine["estimates"][place]
                    assert theirs == pytest.approx([each.value, each.low, each.high], abs=1e-6)
        ours, theirs = measures.summary(chosen["managed w=4"]), figures["eager"][2]
        for name, found_there in (("correct", "best"), ("speedup", "best"), ("last/correct", "last")):
            shown = theirs[found_there][name.removeprefix("last/")]
            assert shown == [ours[name].value, ours[name].low, ours[name].high]
        assert theirs["honest"] == [ours["honest"].value, ours["honest"].low, ours["honest"].high]
        assert theirs["best"]["fast"][4] == [ours["fast@2"].value, ours["fast@2"].low, ours["fast@2"].high]
        for place, turn in enumerate(measures.per_turn(chosen["managed w=4"])):
            assert theirs["turns"][2][place][0] == pytest.approx(turn["fast@1.2"].value, abs=1e-6)
        for first, other, p, calls in ((0, 2, 1.5, 1), (1, 2, 1.2, 8)):
            sides = [list(chosen.values())[number] for number in (first, other)]
            change = measures.compare(*sides, calls, "calls")[measures.fast(p)]
            theirs = figures["eager"][other]["best"]["paired"][str(first)][measures.THRESHOLDS.index(p)]
            assert theirs == [change.value, change.low, change.high, calls]


@pytest.mark.slow
def test_a_run_that_was_never_compared_with_a_baseline_has_no_figures_over_it():
    records = runs(synthetic.records(tasks=12, trials=1))
    assert any(row.verdict.ok for row in records["single"])
    bare = [dataclasses.replace(r, verdict=dataclasses.replace(r.verdict, evidence={})) for r in records["single"]]
    records["single"] = bare
    trials = aligned({name: Trials.of(rows) for name, rows in records.items()})
    over = page_figures.figures(trials, records, ["eager", "compile"])[""]["runs"]
    assert over["compile"][0] is None and over["eager"][0] is not None
    assert over["compile"][2]["best"]["paired"].keys() == {1} and over["eager"][2]["best"]["paired"].keys() == {0, 1}


@needs_browser
@pytest.mark.parametrize(
    ("fragment", "numbers", "view", "baseline", "chosen"),
    [
        ("", (0, 1, 2), "best", "eager", lambda row: True),
        ("#/?view=last&baseline=compile&family=softmax", (0, 1, 2), "last", "compile", lambda r: r.family == "softmax"),
        ("#/?hide=0&level=2&p=2", (1, 2), "best", "eager", lambda row: row.level == 2),
        ("#/?text=softmax&level=7", (0, 1, 2), "best", "eager", lambda row: True),
    ],
)
def test_the_table_of_runs_shows_its_figures(browser, file, study, fragment, numbers, view, baseline, chosen):
    browser.open(file, fragment)
    cells = "[...tr.querySelectorAll('td')].map(td => td.innerText.replace(/\\s+/g, ' ').trim())"
    rows = browser.run(f"[...document.querySelectorAll('.numbers tbody tr')].map(tr => {cells})")
    runs = list(aligned({name: Trials.of(records) for name, records in study.items()}).values())
    tasks = {row.task for records in study.values() for row in records if chosen(row)}
    for number, row in zip(numbers, rows, strict=True):
        run = runs[number].only(tasks).comparable(baseline)
        ours = measures.of_view(run, view, baseline) | measures.of_calls(run)
        names = ("correct", *sections.FASTS, "speedup", "honest")
        assert [cell.replace("\u00d7", "x") for cell in row[: len(names)]] == [report.text(n, ours[n]) for n in names]


@needs_browser
def test_searching_narrows_the_list_of_tasks_alone(browser, file, study):
    browser.open(file, "#/?text=softmax")
    rows = {row.task for records in study.values() for row in records if row.family == "softmax"}
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") == len(rows) < 24
    assert "24 tasks" in browser.run("document.querySelector('.numbers tbody th').textContent")


@needs_browser
def test_a_curve_ends_where_its_run_does(browser, file):
    browser.open(file, "#/?axis=tokens")
    ends = "[...document.querySelectorAll('.chart')[0].querySelectorAll('path.curve')].map(c => c.getBBox())"
    single, *others = browser.run(f"{ends}.map(box => box.x + box.width)")
    assert all(single < 0.6 * other for other in others)
    assert "paired by task, at 1 judge call," in browser.run("document.querySelector('.caption').textContent")


def test_the_page_knows_all_devices_and_notes(study):
    row = study["single"][0]
    other = dataclasses.replace(row, call=1, verdict=dataclasses.replace(row.verdict, device="simulated:H100"))
    text = page.render({"single": [row, other]}, "two", notes=["single: 1 of 2 tasks has no completion"])
    assert '"devices":["simulated:H100","simulated:H200"]' in text
    assert '"notes":["single: 1 of 2 tasks has no completion"]' in text


@needs_browser
def test_a_click_opens_a_task_and_another_one_a_turn(browser, file, study):
    browser.open(file)
    browser.click("table.tasks tbody a")
    browser.wait("document.querySelector('.turn .code')")
    browser.click(".timeline section:last-of-type .call")
    browser.wait("location.hash.endsWith('/2/0/0')")
    task = min(row.task for row in study["single"])
    row = next(row for row in study["managed w=4"] if row.task == task)
    browser.wait("document.querySelector('.turn .where').textContent.includes('trial 0 · chain 0 · turn 0 · call 0')")
    shown = browser.run("[...document.querySelectorAll('.turn .line')].map(line => line.textContent).join('')")
    assert shown == row.source


@needs_browser
def test_a_link_to_a_turn_shows_its_verdict_evidence_and_profile(browser, file, study):
    row = next(row for row in study["managed w=4"] if row.verdict.speedup and row.verdict.speedup > 1.01 and row.shown)
    link = f"#/task/{row.task.replace('/', '%2F').replace('+', '%2B')}/2/{row.trial}/{row.call}"
    browser.open(file, link)
    browser.wait("document.querySelector('.turn')")
    text = browser.run("document.querySelector('.turn').textContent")
    assert "Correct and honest" in text and f"{row.verdict.speedup:.2f} times as fast" in text
    assert "operators left" in text and f"call {row.shown[-1]}" in text
    assert browser.run("document.querySelectorAll('.kernel.own').length") == 1
    assert browser.run("document.querySelectorAll('.call.shown').length") == len(row.shown)
    assert browser.run("document.querySelectorAll('.py-keyword').length") > 5


@needs_browser
def test_an_error_points_at_its_line(browser, file, study):
    row = next(row for row in study["single"] if row.verdict.evidence.get("line"))
    browser.open(file, f"#/task/{row.task.replace('/', '%2F')}/0/{row.trial}/0")
    assert (
        browser.run("[...document.querySelectorAll('.turn .line')].findIndex(x => x.classList.contains('marked'))")
        == 13
    )


@needs_browser
def test_the_keyboard_walks_through_calls_and_back(browser, file, study):
    task = study["managed w=4"][0].task
    browser.open(file, f"#/task/{task.replace('/', '%2F')}/2/0/3")
    browser.key("ArrowRight")
    browser.wait("location.hash.endsWith('/2/0/4') && document.querySelector('.where').textContent.includes('call 4')")
    browser.key("Escape")
    browser.wait("document.querySelector('table.tasks')")
    browser.key("/")
    assert browser.run("document.activeElement.id") == "search"


@needs_browser
def test_a_view_with_filters_is_a_link(browser, file, study):
    browser.open(file, "#/?family=softmax&p=2&status=hack&hide=0")
    rows = [row for name in list(study)[1:] for row in study[name] if row.family == "softmax"]
    hacked = {row.task for row in rows if row.verdict.status == "hack"}
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") == len(hacked)
    assert browser.run("document.querySelectorAll('.numbers tbody tr').length") == 2
    assert "Fast@2 against" in browser.run("document.querySelector('#curves').textContent")
    browser.click(".choice button:not([aria-pressed=true])")
    browser.wait("location.hash.includes('p=0.8') && location.hash.includes('family=softmax')")


@needs_browser
def test_tasks_are_sorted_by_a_click(browser, file):
    browser.open(file)
    browser.click("#sort-run2")
    browser.wait("location.hash.includes('sort=run2')")
    column = browser.run(
        "[...document.querySelectorAll('table.tasks tbody tr')].map(tr => parseFloat(tr.children[5].textContent))"
    )
    speeds = [value for value in column if value is not None and value == value]
    assert speeds == sorted(speeds, reverse=True) and len(speeds) > 10
    assert browser.run("document.querySelector('th[aria-sort=descending]').textContent").startswith("managed")


@needs_browser
def test_hostile_text_stays_text(browser, tmp_path):
    verdict = Verdict("invalid", HOSTILE, HOSTILE, device=HOSTILE, evidence={HOSTILE: [HOSTILE], "line": 1})
    verdict = dataclasses.replace(verdict, profile=(KernelTime(HOSTILE, 2, 1.0, True),))
    row = dataclasses.replace(synthetic.records(tasks=1)[0], task=HOSTILE, family=HOSTILE, source=HOSTILE)
    row = dataclasses.replace(row, strategy=HOSTILE, model=HOSTILE, verdict=verdict)
    path = tmp_path / "index.html"
    path.write_text(page.render({HOSTILE: [row]}, HOSTILE, {HOSTILE: HOSTILE}), encoding="utf-8")
    browser.open(path)
    browser.click("table.tasks tbody a")
    browser.wait("document.querySelector('.turn .code')")
    assert browser.run("document.querySelector('.turn .code').textContent") == HOSTILE + "\n"
    assert browser.run("document.querySelector('.detail').textContent") == HOSTILE
    assert browser.run("document.querySelector('h1').textContent") == HOSTILE
    assert browser.run("[window.hacked === undefined, document.images.length]") == [True, 0]


@pytest.mark.slow
@needs_browser
def test_long_lists_are_drawn_as_they_come_into_view(browser, tmp_path):
    rows = [row for row in synthetic.records(tasks=300, trials=1) if row.strategy == "parallel 8"]
    rows = [dataclasses.replace(row, level=None, family="") for row in rows]  # one choice of tasks, so few figures
    path = tmp_path / "index.html"
    path.write_text(page.render({"parallel 8": rows}, "Many"), encoding="utf-8")
    browser.open(path)
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") < 200
    drawn = "document.querySelectorAll('table.tasks tbody tr').length"
    browser.wait(f"(scrollTo(0, document.body.scrollHeight), {drawn} >= 300)")
    assert browser.run(drawn) == 300


@needs_browser
def test_it_is_light_or_dark_as_the_system_wishes_or_the_reader(browser, file):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(file)
    light = browser.run(paper)
    browser.scheme("dark")
    dark = browser.run(paper)
    assert light != dark
    browser.click(".theme")
    assert browser.run(paper) == light
    browser.run("localStorage.clear()")


@needs_browser
@pytest.mark.parametrize("width", [340, 700, 1600])
def test_nothing_sticks_out_of_the_screen(browser, file, study, width):
    browser.size(width, 800)
    task = study["managed w=4"][0].task
    for fragment in ("", f"#/task/{task.replace('/', '%2F')}/2/0/3"):
        browser.open(file, fragment)
        assert browser.run("document.documentElement.scrollWidth") <= width
