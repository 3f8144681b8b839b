"""Against a small real server. test_endpoint_vllm.py has vLLM's own."""

import json
import logging
import re
import time
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from drkernel.policy import Sampling
from drkernel.policy.engines import endpoint as module
from drkernel.policy.engines.endpoint import ChatEndpoint, Refused, TooLong
from drkernel.types import DrKernelError
from tests.policy.chat_server import Server, good, status

KEY = "sk-never-to-be-seen"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """A key, no proxies, and short pauses."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.05)


@contextmanager
def serving(*plan, **options):
    server = Server(*plan)
    timeout = 0.4 if "hang" in plan or "drip" in plan else 5.0  # a busy machine takes longer than 0.4 s for an answer
    endpoint = ChatEndpoint(server.url, "m", **{"timeout_s": timeout, "concurrency": 1} | options)
    try:
        yield server, endpoint
    finally:
        endpoint.close()
        server.stop()


def ask(endpoint, text="0", **options):
    messages = [{"role": "user", "content": text}]
    return endpoint.submit(messages, **{"seed": 1, "max_tokens": 64} | options)


def test_an_answer_comes_with_its_counts_and_what_was_asked_for_was_sent():
    with serving(prompt_price=2.0, answer_price=8.0) as (server, endpoint):
        reply = ask(endpoint, "7", seed=2**62 + 5, sampling=Sampling(0.5, top_p=0.9)).result()
        assert (reply.text, reply.prompt_tokens, reply.tokens, reply.finished) == ("answer to 7", 107, 17, True)
        assert 0 < reply.seconds < 1
        body = server.requests[0]
        assert (body["model"], body["seed"], body["max_tokens"]) == ("m", (2**62 + 5) % 2**31, 64)
        assert (body["temperature"], body["top_p"]) == (0.5, 0.9) and {"top_k", "min_p"}.isdisjoint(body)
        ask(endpoint, "7", sampling=Sampling(top_k=20, min_p=0.05)).result()
        assert (server.requests[1]["top_k"], server.requests[1]["min_p"]) == (20, 0.05), "vLLM's servers know them"
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        usage = endpoint.usage
        assert (usage.replies, usage.failures, usage.prompt_tokens, usage.tokens) == (2, 0, 214, 34)
        assert usage.cost == pytest.approx(2 * (2 * 107 + 8 * 17) / 1e6)


@pytest.mark.parametrize(
    "trouble",
    [
        status(500),
        status(502),
        status(429, headers={"Retry_After": "0.05"}),
        status(429),
        "hang",
        "drip",
        "break_off",
        "die",
        b'{"choices": [',
        b"<html>Bad gateway</html>",
        {"choices": []},
        {"choices": [{"message": {"content": "x"}}]},
        {"choices": [{"message": {"content": ["x"]}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        [1],
    ],
    ids=lambda trouble: str(trouble)[:32],
)
def test_what_may_pass_is_tried_again_and_counted_once(trouble):
    with serving(trouble, trouble) as (server, endpoint):
        reply = ask(endpoint, "3").result(timeout=10)
        assert (reply.text, len(server.requests)) == ("answer to 3", 3)
        assert server.requests[0] == server.requests[2]
        usage = endpoint.usage
        assert (usage.replies, usage.failures, usage.prompt_tokens, usage.tokens) == (1, 2, 103, 13)


def test_nothing_is_lost_or_confused_among_many_with_every_kind_of_trouble():
    plan = [status(500), "hang", good, "die", b"{", status(429, headers={"Retry_After": "0.1"}), "break_off", good] * 4
    with serving(*plan, concurrency=6) as (server, endpoint):
        replies = [future.result(timeout=60) for future in [ask(endpoint, str(n)) for n in range(40)]]
        assert [reply.text for reply in replies] == [f"answer to {n}" for n in range(40)]
        assert [reply.tokens for reply in replies] == [10 + n for n in range(40)]
        usage = endpoint.usage
        assert (usage.replies, usage.failures) == (40, 24)
        assert usage.tokens == sum(10 + n for n in range(40))
        assert len(server.requests) == 64
        assert server.most_open <= 6 + 4  # a hung request that was given up may still be open on the server's side


def test_a_server_that_restarts_is_waited_for():
    server = Server()
    with ChatEndpoint(server.url, "m", timeout_s=1, concurrency=3, retries=0) as endpoint:
        assert ask(endpoint, "1").result(timeout=5).text == "answer to 1"
        server.stop()
        futures = [ask(endpoint, str(n)) for n in range(5)]
        time.sleep(0.5)
        assert not any(future.done() for future in futures)
        again = Server(port=server.port)
        assert [future.result(timeout=10).text for future in futures] == [f"answer to {n}" for n in range(5)]
        again.stop()


def test_a_server_that_stays_away_is_given_up():
    server = Server()
    server.stop()
    with ChatEndpoint(server.url, "m", patience_s=0.3) as endpoint:
        started = time.monotonic()
        with pytest.raises(DrKernelError, match=r"given up after \d+ attempts: no connection \(ConnectionRefused"):
            ask(endpoint).result(timeout=10)
        assert 0.2 < time.monotonic() - started < 3


def test_a_server_that_asks_for_patience_gets_it_and_that_is_no_failure():
    plan = [status(503), status(529), status(429), status(503, headers={"Retry_After": "0.05"})] * 3
    with serving(*plan, retries=0) as (server, endpoint):
        assert ask(endpoint, "2").result(timeout=10).text == "answer to 2"
        assert len(server.requests) == 13
    given_up = pytest.raises(DrKernelError, match=r"given up after \d+ attempts: status 503: overloaded")
    with serving(*[status(503, "overloaded")] * 1000, patience_s=0.2) as (_, endpoint), given_up:
        ask(endpoint).result(timeout=10)


def test_failures_are_made_good_so_often_and_no_more():
    with serving(*[status(500, "out of order")] * 3, retries=2) as (server, endpoint):
        with pytest.raises(DrKernelError, match="given up after 3 attempts: status 500: out of order"):
            ask(endpoint).result(timeout=10)
        assert len(server.requests) == 3
        assert ask(endpoint, "4").result(timeout=10).tokens == 14


@pytest.mark.parametrize("reply", [{"choices": []}, {"error": {"message": "overloaded"}}, [1]], ids=str)
def test_a_reply_that_is_none_is_shown_with_what_was_expected(reply):
    found = re.escape(f"given up after 1 attempts: expected choices and usage, found {json.dumps(reply)}")
    with serving(json.dumps(reply).encode(), retries=0) as (_, endpoint), pytest.raises(DrKernelError, match=found):
        ask(endpoint).result(timeout=10)


def test_a_hung_request_is_given_up_at_its_deadline():
    with serving("hang", retries=0, timeout_s=0.3) as (_, endpoint):
        started = time.monotonic()
        with pytest.raises(DrKernelError, match=r"TimeoutError: no reply within 0\.3 s"):
            ask(endpoint).result(timeout=10)
        assert time.monotonic() - started < 1
    with serving("drip", retries=0, timeout_s=0.3) as (_, endpoint):
        started = time.monotonic()
        with pytest.raises(DrKernelError, match=r"not complete within 0\.3 s"):
            ask(endpoint).result(timeout=10)
        assert time.monotonic() - started < 1


@pytest.mark.slow
@pytest.mark.parametrize("value", ["0.6", lambda: formatdate(time.time() + 2, usegmt=True)], ids=["seconds", "date"])
def test_retry_after_is_honoured_by_all_requests(value):
    value = value if isinstance(value, str) else value()
    with serving(status(429, headers={"Retry_After": value}), concurrency=4) as (server, endpoint):
        futures = [ask(endpoint)]
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.1)
        futures += [ask(endpoint) for _ in range(3)]
        assert all(future.result(timeout=10) for future in futures)
        pauses = [moment - server.times[0] for moment in server.times[1:]]
        assert min(pauses) > 0.55 and max(pauses) < 4


def test_no_more_requests_are_begun_per_minute_than_allowed():
    with serving(requests_per_minute=600, concurrency=8) as (server, endpoint):
        start = time.monotonic()
        for future in [ask(endpoint) for _ in range(6)]:
            future.result(timeout=10)
        assert all(moment - start >= 0.1 * number for number, moment in enumerate(sorted(server.times)))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (status(401, f"Incorrect API key provided: {KEY}"), r"status 401: Incorrect API key provided: \[key\]"),
        (status(404, "no such model"), "status 404: no such model"),
        (status(429, "You exceeded your quota", code="insufficient_quota"), "status 429: You exceeded"),
        (status(400, "You exceeded your quota", type="insufficient_quota"), "status 400: You exceeded"),
        (status(403, "This account is closed"), "status 403: This account is closed"),
    ],
)
def test_what_cannot_pass_is_said_at_once_and_without_the_key(answer, message):
    with serving(answer) as (server, endpoint):
        with pytest.raises(DrKernelError, match=message) as error:
            ask(endpoint).result(timeout=10)
        assert len(server.requests) == 1 and not isinstance(error.value, Refused)
        assert KEY not in str(error.value)


@pytest.mark.parametrize(
    "answer",
    [
        status(400, "This model's maximum Context Length is 4096 tokens."),
        status(400, "no", code="context_length_exceeded"),
        status(413, "prompt is too long: 4097 tokens > 4096 maximum"),
        status(400, "The input token count (4097) exceeds the maximum number of tokens allowed (4096)."),
        status(422, "Larger than the context window"),
        status(500, "too much", type="exceed_context_size_error"),
        status(503, "the request exceeds the available context size, try increasing it"),
    ],
    ids=lambda answer: answer[1]["error"]["message"][:32],
)
def test_a_prompt_that_is_too_long_is_told_apart_whatever_the_server_calls_it(answer):
    with serving(answer) as (server, endpoint):
        with pytest.raises(TooLong, match=f"status {answer[0]}"):
            ask(endpoint).result(timeout=10)
        assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [status(400, "filtered"), status(413, "filtered"), (422, "filtered", {})])
def test_what_concerns_one_request_is_refused_for_it_alone(answer):
    with serving(answer) as (server, endpoint):
        with pytest.raises(Refused, match=f"^status {answer[0]}: filtered$"):
            ask(endpoint).result(timeout=10)
        assert ask(endpoint, "1").result(timeout=10).text == "answer to 1"
        assert len(server.requests) == 2


def test_a_server_that_refuses_many_requests_in_a_row_refuses_all():
    refused = status(400, "no chat template")
    with serving(*[refused] * 15, good, *[refused] * 16) as (_, endpoint):
        errors = [ask(endpoint, "1").exception(timeout=10) for _ in range(32)]
        assert errors[15] is None and all(isinstance(error, Refused) for error in errors[:15] + errors[16:31])
        assert isinstance(errors[31], DrKernelError) and not isinstance(errors[31], Refused)
        assert str(errors[31]).endswith(
            "16 requests in a row were refused, the last one with status 400: no chat template"
        )


def test_parameters_that_a_model_does_not_take_are_left_out_or_renamed():
    refuse = lambda name: status(400, f"Unsupported: {name}", code="unsupported_parameter", param=name)
    with serving(refuse("max_tokens"), refuse("seed")) as (server, endpoint):
        assert ask(endpoint, "5").result(timeout=10).tokens == 15
        assert {"seed", "max_tokens"} == endpoint.not_sent
        assert server.requests[2].keys() == {"model", "messages", "temperature", "max_completion_tokens"}
        assert server.requests[2]["max_completion_tokens"] == 64


def test_a_parameter_that_is_refused_to_many_at_once_is_left_out_for_all():
    def no_seed(request):
        time.sleep(0.1)  # until all three are under way
        refused = status(400, "Unsupported: seed", code="unsupported_parameter", param="seed")
        return refused if "seed" in request else good(request)

    with serving(*[no_seed] * 6, concurrency=3) as (server, endpoint):
        futures = [ask(endpoint, str(n)) for n in range(3)]
        assert [future.result(timeout=10).tokens for future in futures] == [10, 11, 12]
        assert {"seed"} == endpoint.not_sent and len(server.requests) == 6


def test_a_query_in_the_address_is_sent_with_every_request():
    server = Server()
    with ChatEndpoint(f"{server.url}?api-version=2&x=ab") as endpoint:
        assert ask(endpoint, "1").result(timeout=5).text == "answer to 1"
    server.stop()
    assert server.paths == ["/v1/models?api-version=2&x=ab", "/v1/chat/completions?api-version=2&x=ab"]


def test_a_redirection_is_not_followed():
    with serving((302, {}, {"Location": "/v1/elsewhere"})) as (server, endpoint):
        with pytest.raises(DrKernelError, match="status 302"):
            ask(endpoint).result(timeout=10)
        assert server.paths == ["/v1/chat/completions"]


def test_answers_that_were_cut_say_so():
    cut = good({"messages": [{"content": "1"}]})
    cut["choices"][0] |= {"finish_reason": "length", "message": {"content": None}}
    with serving(cut) as (_, endpoint):
        reply = ask(endpoint, "1").result(timeout=10)
        assert (reply.text, reply.finished, reply.tokens) == ("", False, 11)


def test_the_key_is_in_no_log_and_no_text(caplog):
    caplog.set_level(logging.DEBUG)
    with serving(status(500, f"bad key {KEY}"), "die") as (_, endpoint):
        ask(endpoint).result(timeout=10)
        assert KEY not in caplog.text and KEY not in repr(endpoint)
        assert "[key]" in caplog.text


def test_without_a_key_none_is_sent(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving() as (server, endpoint):
        ask(endpoint).result(timeout=10)
        assert "Authorization" not in server.headers[0]
        assert endpoint.context is None and "Authorization" not in server.headers[1]


def test_a_server_with_one_model_need_not_be_told_which():
    server = Server()
    with ChatEndpoint(server.url) as endpoint:
        assert (endpoint.model, endpoint.context) == ("only", 4096)
    server.stop()


@pytest.mark.parametrize(
    ("models", "context"),
    [
        ((200, {"data": [{"id": "other", "max_model_len": 9}, {"id": "m", "max_model_len": 2048}]}), 2048),
        ((200, {"data": [{"id": "m"}]}), None),
        ((200, {"data": [{"id": "m", "max_model_len": "long"}]}), None),
        ((200, {"data": []}), None),
        ((200, ["no list"]), None),
        ((404, {}), None),
        ((500, {}), None),
    ],
)
def test_the_context_of_a_named_model_is_what_the_server_says_if_it_does(models, context):
    with serving() as (server, endpoint):
        server.models = models
        assert endpoint.context == context
        assert ask(endpoint, "1").result(timeout=10).text == "answer to 1"


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "https://user:secret@host/v1", ""])
def test_addresses_that_are_none_or_hold_credentials_are_refused(url):
    with pytest.raises(DrKernelError, match=r"endpoint\.url must") as error:
        ChatEndpoint(url, "m")
    assert "secret" not in str(error.value)


def test_closing_cancels_what_waits():
    with serving("hang", timeout_s=5) as (_, endpoint):
        futures = [ask(endpoint) for _ in range(4)]
        time.sleep(0.1)
        endpoint.close()
        assert [future.cancelled() for future in futures] == [False, True, True, True]
        with pytest.raises(DrKernelError, match="closed"):
            futures[0].result(timeout=1)
        with pytest.raises(DrKernelError, match="already closed"):
            ask(endpoint)
