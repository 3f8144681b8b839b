"""A judge for other machines: what the server answers, and whom it does not answer."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drkernel.judge import RemoteJudge, feedback, read_token
from drkernel.judge.__main__ import main
from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.feedback import estimated_tokens
from drkernel.judge.network import listener, messages
from drkernel.judge.network.server import HttpServer
from drkernel.judge.options import JudgeOptions
from drkernel.tasks import read_task
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost
from tests.judge.examples import HERE
from tests.judge.network.fakes import FakeJudge, comes_true, served

TOKEN = "a token of sixteen or more"
FILE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
RELU = HERE / "tasks/relu.py"


@pytest.fixture(scope="module")
def fake():
    return FakeJudge()


@pytest.fixture(scope="module")
def open_server(fake):
    with served(fake) as (one,):
        yield one


def ask(
    one: HttpServer, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, dict]:
    """A request as any program may send it: status and decoded reply. A body of bytes is sent as it is."""
    connection = http.client.HTTPConnection(one.url.removeprefix("http://"), timeout=20)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, headers or {})
    response = connection.getresponse()
    return response.status, json.loads(response.read() or "{}")


def test_a_submission_is_answered_with_its_verdict_and_the_text_of_its_feedback(open_server):
    status, reply = ask(open_server, "POST", "/judge", {"task": FILE, "submission": "0"})
    verdict = Verdict("ok", "faster", detail="0", evidence={"task": "task"}, speedup=1.5, coverage=1.0)
    assert status == 200 and Verdict.from_dict(reply["verdict"]) == verdict
    assert reply["feedback"] == feedback(verdict, messages.FEEDBACK_TOKENS, estimated_tokens)
    _, short = ask(open_server, "POST", "/judge", {"task": FILE, "submission": "0", "feedback_tokens": 9})
    assert reply["feedback"].startswith(short["feedback"]) and len(short["feedback"]) <= 27


def test_a_task_is_the_text_of_a_file_or_the_fields_of_a_task(open_server, fake, tmp_path):
    text = f"{RELU.read_text()}\nSMALL = {{'rows': 3}}\n"
    assert ask(open_server, "POST", "/judge", {"task": text, "submission": "0"})[0] == 200
    (tmp_path / "relu.py").write_text(text)
    read = read_task(tmp_path / "relu.py")
    assert fake.seen[-1][0].digest == read.digest and read.small == {"rows": 3}
    fields = {"source": "class Other: half", "entry_point": "Other", "precision": "low", "small": {"N": 3}, "id": "t"}
    assert ask(open_server, "POST", "/judge", {"task": fields, "submission": "0"})[0] == 200
    assert fake.seen[-1][0] == Task("t", "class Other: half", "Other", precision="low", small={"N": 3})


def test_no_task_is_executed_by_the_server_not_even_for_its_precision(open_server, tmp_path):
    source = f"{FILE}open({str(tmp_path / 'executed')!r}, 'w')\nkind = 'float16'\n"
    status, reply = ask(open_server, "POST", "/judge", {"task": source, "submission": "0"})
    assert status == 422 and "task.precision: found none" in reply["error"] and "ieee, tf32 or low" in reply["error"]
    fields = {"source": source, "precision": "low"}
    assert ask(open_server, "POST", "/judge", {"task": fields, "submission": "0"})[0] == 200
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/judge", b"{", 400, ["/judge", "found no JSON", "expected an object"]),
        ("POST", "/judge", b"\xff", 400, ["found no JSON"]),
        ("POST", "/judge", b"[" * 10**5, 400, ["found no JSON"]),
        ("POST", "/judge", [1], 400, ["Expected `object`, got `array`"]),
        ("POST", "/judge", {"task": FILE}, 400, ["missing required field `submission`"]),
        ("POST", "/judge", {"task": FILE, "submission": 3}, 400, ["Expected `str`, got `int`", "$.submission"]),
        ("POST", "/judge", {"task": 3, "submission": "0"}, 400, ["Expected `str | object`, got `int`", "$.task"]),
        ("POST", "/judge", {"task": FILE, "submission": "0", "x": 1}, 400, ["unknown field `x`"]),
        ("POST", "/judge", {"task": {"source": FILE, "x": 1}, "submission": "0"}, 400, ["field `x`", "$.task"]),
        ("POST", "/judge", {"task": {"source": FILE, "precision": "fp8"}, "submission": "0"}, 400, ["precision"]),
        ("POST", "/judge", {"task": {"source": FILE, "entry_point": "a b"}, "submission": ""}, 400, ["entry_point"]),
        ("POST", "/judge", {"task": {"source": FILE, "small": {"N": 1.5}}, "submission": ""}, 400, ["small"]),
        ("POST", "/judge", {"task": FILE, "submission": "0", "feedback_tokens": 0}, 400, ["feedback_tokens", ">= 1"]),
        ("POST", "/judge", {"task": "def (", "submission": "0"}, 422, ["task: SyntaxError"]),
        ("POST", "/judge", {"task": "class Model: ...", "submission": "0"}, 422, ["does not define 'get_inputs'"]),
        ("POST", "/judge", {"task": FILE, "submission": "unusable"}, 422, ["task t: cannot be used"]),
        ("POST", "/judge", {"task": FILE, "submission": "broken"}, 500, ["judge: KeyError: 'a bug'"]),
        ("POST", "/check", {"task": {"source": FILE, "id": "failed"}}, 500, ["could not be prepared"]),
        ("POST", "/check", {"task": FILE, "submission": "0"}, 400, ["unknown field `submission`"]),
        ("POST", "/other", {}, 404, ["found /other", "/health, /judge, /check"]),
        ("GET", "/judge", None, 405, ["found GET, expected POST"]),
        ("POST", "/health", {}, 405, ["found POST, expected GET"]),
    ],
)
def test_a_request_that_cannot_be_answered_says_what_was_found_and_expected(
    open_server, method, path, body, status, words
):
    found, reply = ask(open_server, method, path, body)
    assert found == status and all(word in reply["error"] for word in words), reply


def test_a_task_is_checked(open_server):
    told = lambda id: ask(open_server, "POST", "/check", {"task": {"source": FILE, "id": id}})
    identity = open_server.about.identity
    assert told("t") == (200, {"usable": True, "why": "", "identity": identity})
    assert told("degenerate") == (200, {"usable": True, "why": "zeros", "identity": identity})
    refused = {"usable": False, "why": "task bad: trivial answer passes", "identity": identity}
    assert told("bad") == (200, refused)


def test_the_health_says_what_verdicts_depend_on_and_how_much_is_under_way(open_server, fake):
    status, health = ask(open_server, "GET", "/health")
    assert status == 200 and health["workers"] == 2 and health["pending"] == 0
    about = health["about"]
    assert about["device"] == "simulated:H200" and about["options"]["timeout_s"] == 20.0
    assert {"lazy_below", "criterion", "shapes", "timed_shapes", "degenerate"} <= about["options"].keys()
    assert "secret" not in str(health)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, open_server, "POST", "/judge", {"task": FILE, "submission": "never"})
        comes_true(lambda: ask(open_server, "GET", "/health")[1]["pending"] == 1, "one is under way")
        fake.never.pop().set_result(Verdict("ok", "slower", speedup=0.5, coverage=1.0))
        assert asked.result()[0] == 200
    assert ask(open_server, "GET", "/health")[1]["pending"] == 0


def test_a_judge_on_gpus_says_which_and_what_it_does_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", ["NVIDIA H100", "NVIDIA H200"].__getitem__)
    about = messages.About.of(JudgeOptions(device="cuda", gpus=["5"]))
    assert about.device == "cuda:NVIDIA H200" and about.options["timeout_s"] == 8 and about.options["screen"]
    assert not messages.About.of(JudgeOptions(device="cuda", criterion="both")).options["screen"]
    assert about.identity != messages.About.of(JudgeOptions(device="cuda")).identity


def test_a_browser_is_refused(open_server):
    status, reply = ask(open_server, "POST", "/judge", {"task": FILE, "submission": "0"}, {"Origin": "http://page"})
    assert status == 403 and "browser" in reply["error"]


def test_a_request_that_is_too_long_is_refused_while_it_is_sent(open_server):
    status, reply = ask(open_server, "POST", "/judge", b" " * (messages.MAX_REQUEST + 1))
    assert status == 413 and f"expected at most {messages.MAX_REQUEST}" in reply["error"]
    status, reply = ask(open_server, "POST", "/judge", b"", {"Content-Length": "many"})
    assert status == 411 and "found many" in reply["error"]
    longest = {"task": FILE, "submission": "\U0001f600" * (MAX_SOURCE + 1)}
    assert ask(open_server, "POST", "/judge", longest)[0] != 413


def test_with_a_token_nothing_is_answered_without_it(fake):
    with served(fake, token=TOKEN) as (one,):
        for header in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "é"}):
            for method, path in (("GET", "/health"), ("POST", "/judge"), ("POST", "/nowhere")):
                status, reply = ask(one, method, path, b"", header)
                assert status == 401 and "Bearer TOKEN" in reply["error"] and TOKEN not in reply["error"]
        assert ask(one, "GET", "/health", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_served_with_a_token_only(fake, host):
    with pytest.raises(DrKernelError, match=r"can be reached from other machines; expected a token \(--token-file"):
        HttpServer(fake, host, 0)


def test_an_address_that_is_taken_is_an_error(open_server, fake):
    port = int(open_server.url.rpartition(":")[2])
    with pytest.raises(DrKernelError, match=rf"judge: cannot listen at 127\.0\.0\.1:{port}: Address already in use"):
        HttpServer(fake, "127.0.0.1", port)


@pytest.mark.parametrize(
    ("text", "words"), [("short", "found 5 characters"), ("", "found 0"), ("ü" * 20, "printable ASCII")]
)
def test_a_token_is_one_line_that_nobody_guesses(tmp_path, text, words):
    (tmp_path / "token").write_text(text)
    with pytest.raises(DrKernelError, match=rf"token file .*token: .*{words}.*expected one line of 16 or more"):
        read_token(tmp_path / "token")
    with pytest.raises(DrKernelError, match=r"token file nowhere: No such file"):
        read_token("nowhere")
    (tmp_path / "token").write_text(f"{TOKEN.replace(' ', '-')}\n")
    assert read_token(tmp_path / "token") == TOKEN.replace(" ", "-")


def test_closing_answers_what_is_under_way_and_ends_the_threads(fake):
    before = threading.active_count()
    one = HttpServer(fake, "127.0.0.1", 0)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, one, "POST", "/judge", {"task": FILE, "submission": "never"}) for _ in range(8)]
        comes_true(lambda: one.pending == 8, "all are under way")
        one.close()
        assert all(each.result()[0] == 503 and "closing" in each.result()[1]["error"] for each in asked)
    one.close()
    with pytest.raises(ConnectionRefusedError):
        ask(one, "GET", "/health")
    comes_true(lambda: threading.active_count() <= before, "no thread is left")


def test_a_client_that_goes_away_disturbs_nobody(open_server, fake):
    connection = http.client.HTTPConnection(open_server.url.removeprefix("http://"))
    connection.request("POST", "/judge", json.dumps({"task": FILE, "submission": "never"}).encode())
    comes_true(lambda: open_server.pending == 1, "it is under way")
    connection.close()
    fake.never.pop().set_result(Verdict("ok", "slower", speedup=0.5, coverage=1.0))
    comes_true(lambda: open_server.pending == 0, "it has ended")
    assert ask(open_server, "POST", "/judge", {"task": FILE, "submission": "0"})[0] == 200


def test_connections_are_bounded_and_a_client_waits_for_one(fake, monkeypatch):
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr("drkernel.judge.network.connection._BUSY_S", 0.05)
    with served(fake) as (one,), RemoteJudge([one.url]) as judge:
        asked = [judge.submit(Task("t", FILE), "0.1") for _ in range(3)]
        comes_true(lambda: one._listener.open == 1, "one is under way")
        assert ask(one, "GET", "/health")[0] == 429
        assert all(each.result(10).ok for each in asked)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", "8000"], "--serve: found 8000, expected HOST:PORT"),
        (["--serve", "127.0.0.1:70000"], "--serve: found 127.0.0.1:70000"),
        (["--serve", "127.0.0.1:0", "--batch", "x", "--out", "y"], "or --serve"),
        (["--token-file", "x", "a", "b"], "--token-file needs --serve"),
        (["--serve", "127.0.0.1:0", "--token-file", "nowhere"], "token file nowhere: No such file"),
        (["--serve", "127.0.0.1:0", "--timed-shapes", "9"], "timed_shapes is 9"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(arguments, words, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_verdict_over_http_is_the_judges_own(judge, tasks):
    honest, hack = (HERE / "submissions" / name for name in ("honest/90_helpers.py", "hacks/04_decoy.py"))
    sources = [honest.read_text(), hack.read_text(), "class ModelNew(:", "x" * (MAX_SOURCE + 50)]
    with HttpServer(judge, "127.0.0.1", 0) as one, RemoteJudge([one.url]) as remote:
        assert remote.check_task(tasks["relu"]) == judge.check_task(tasks["relu"])
        verdicts = [remote.judge(tasks["relu"], source) for source in sources]
        assert [verdict.reason for verdict in verdicts[2:]] == ["syntax_error", "too_large"]
        local = [judge.judge(tasks["relu"], source) for source in sources]
        local[3] = dataclasses.replace(local[3], seconds=verdicts[3].seconds)  # the client sends less of it
        assert verdicts == local
        for broken in ("import torch\nclass Model: pass\n", "def ("):
            with pytest.raises(DrKernelError) as direct:
                judge.check_task(Task("broken", broken))
            with pytest.raises(DrKernelError) as over_http:
                remote.check_task(Task("broken", broken))
            assert str(over_http.value) == str(direct.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:judge. http")
def test_the_command_serves_until_a_signal_ends_it_and_its_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("drkernel.judge.network.client.PATIENCE_S", 0.0)
    (tmp_path / "token").write_text("0123456789abcdef\n")
    command = [sys.executable, "-m", "drkernel.judge", "--serve", "127.0.0.1:0", "--token-file", tmp_path / "token"]
    command += ["--device", "simulated", "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert "measures on simulated:H200, 1 workers" in said
    url = said.split()[2].rstrip(",")
    with RemoteJudge([url], "0123456789abcdef") as remote:
        relu = read_task(RELU)
        source = (HERE / "submissions/honest/90_helpers.py").read_text()
        assert remote.judge(relu, source).ok
        workers = children(process.pid)
        others = [remote.submit(relu, f"{source}\nx = {i}\n") for i in range(4)]
        comes_true(lambda: ask_with(url, "0123456789abcdef")["pending"] == 4, "all are under way")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(WorkerLost, match="this server is closing"):
            others[-1].result(20)
        assert process.wait(30) == 0
    assert workers and not any(Path(f"/proc/{worker}").exists() for worker in workers)


def ask_with(url: str, token: str) -> dict:
    """The health of a server."""
    request = urllib.request.Request(f"{url}/health", headers={"Authorization": f"Bearer {token}"})
    return json.load(urllib.request.urlopen(request))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def test_the_server_listens_on_ipv6_too(fake):
    if not os.path.exists("/proc/net/if_inet6") or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    one = HttpServer(fake, "::1", 0)
    with one, RemoteJudge([one.url]) as judge:
        assert judge.judge(Task("t", FILE), "0").ok
