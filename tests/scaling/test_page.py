import dataclasses
import json
from pathlib import Path

import pytest

from drkernel.scaling import measures, page
from drkernel.scaling.records import Record
from drkernel.scaling.trials import Trials, aligned
from drkernel.types import KernelTime, Verdict
from tests.scaling import synthetic
from tests.scaling.browser import CHROMIUM, Browser, chromium

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
    assert text.count("</script>") == text.count("<script") == 3


def test_numbers_that_json_has_not_become_words():
    assert page._plain({"a": [float("nan"), (1.5, float("inf"))]}) == {"a": ["nan", [1.5, "inf"]]}


@needs_browser
def test_every_task_has_a_row_and_every_run_a_line(browser, file, study):
    browser.open(file)
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") == 24
    names = browser.run("[...document.querySelectorAll('.numbers tbody th')].map(th => th.childNodes[1].textContent)")
    assert names == list(study)
    assert browser.run("document.querySelectorAll('.chart path.curve').length") >= 3


@needs_browser
def test_the_page_measures_what_the_tables_say(browser, file, study):
    browser.open(file)
    runs = aligned({name: Trials.of(rows) for name, rows in study.items()})
    for number, run in enumerate(runs.values()):
        assert browser.run(f"reach({number}, 'calls')") == run.reach("calls")
        assert browser.run(f"reach({number}, 'tokens')") == run.reach("tokens")
        assert len(run.comparable("compile").tasks) == len(run.tasks) - 1
        for view in measures.VIEWS:
            for axis, budgets in (("calls", [1, 2, 4, 8]), ("tokens", [500, 1500.5]), ("seconds", [3, 9.25])):
                options = {"p": 1.2, "axis": axis, "view": view, "baseline": "compile"}
                theirs = browser.run(f"curve({number}, chosenTasks(), {json.dumps(options)}, {budgets})")
                ours = measures.curve(run, budgets, axis, 1.2, view, "compile")
                for a, b in zip(theirs, ours, strict=True):
                    assert [a["value"], a["low"], a["high"]] == pytest.approx([b.value, b.low, b.high], abs=1e-12)
    theirs = browser.run("summary(2, chosenTasks(), {view: 'best', baseline: 'eager'})")
    ours = measures.summary(Trials.of(study["managed w=4"]))
    for name in ("correct", "honest", "speedup"):
        found = [theirs[name][side] for side in ("value", "low", "high")]
        assert found == pytest.approx([ours[name].value, ours[name].low, ours[name].high])
    for first, other, p, calls in ((0, 2, 1.5, 1), (1, 2, 1.2, 8), (2, 2, 1.2, 8)):
        sides = [list(runs.values())[number] for number in (first, other)]
        change = measures.compare(*sides, calls, "calls")[measures.fast(p)]
        theirs = browser.run(
            f"difference({first}, {other}, chosenTasks(), {{p: {p}, view: 'best', baseline: 'eager'}})"
        )
        found = [theirs[side] for side in ("value", "low", "high", "better", "worse", "calls")]
        assert found == pytest.approx([change.value, change.low, change.high, change.better, change.worse, calls])


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
    text = page.render({"single": [row, other]}, "two", notes=["single: 1 of 2 tasks has no answer"])
    assert '"devices":["simulated:H100","simulated:H200"]' in text
    assert '"notes":["single: 1 of 2 tasks has no answer"]' in text


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


@needs_browser
def test_long_lists_are_drawn_as_they_come_into_view(browser, tmp_path):
    rows = [row for row in synthetic.records(tasks=300, trials=1) if row.strategy == "parallel 8"]
    path = tmp_path / "index.html"
    path.write_text(page.render({"parallel 8": rows}, "Many"), encoding="utf-8")
    browser.open(path)
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") < 200
    for _ in range(6):
        browser.run("scrollTo(0, document.body.scrollHeight)")
        browser.run("new Promise(done => setTimeout(done, 120))")
    assert browser.run("document.querySelectorAll('table.tasks tbody tr').length") == 300


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
