import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from drkernel.policy.engine import Sampling
from drkernel.policy.engines.endpoint import Refused, Reply, TooLong
from drkernel.scaling.chat import ChatModel, messages
from drkernel.types import DrKernelError, Task, Verdict

TASK = Task("t", "class Model: ...")
CODE = "class ModelNew:\n    pass\n"


class Endpoint:
    """Hands out futures that the test completes."""

    def __init__(self, context=None):
        self.context, self.asked = context, []

    def submit(self, messages, seed, max_tokens, sampling):
        future = Future()
        self.asked.append((messages, (seed, max_tokens, sampling), future))
        return future


def make(endpoint):
    return ChatModel("hosted", endpoint, max_tokens=50, feedback_limit=40, sampling=Sampling(0.7, 0.9))


def turn(answer, verdict=None):
    return SimpleNamespace(
        answer=answer,
        verdict=verdict or Verdict("ok", "faster", speedup=2.0, coverage=1.0, reference_ms=2.0, submission_ms=1.0),
        finished=True,
    )


def test_a_conversation_holds_the_task_and_the_shown_turns_in_order():
    shown = [turn(f"```python\n{CODE}```"), turn("", Verdict("invalid", "no_code", "There is no code."))]
    conversation = messages(TASK, shown, 40)
    assert [message["role"] for message in conversation] == ["user", "assistant", "user", "assistant", "user"]
    assert TASK.source in conversation[0]["content"] and "ModelNew" in conversation[0]["content"]
    assert conversation[1]["content"] == f"```python\n{CODE}```"
    assert conversation[3]["content"] and "There is no code." in conversation[4]["content"]


def test_answers_come_as_they_are_ready_whatever_was_asked_first():
    endpoint = Endpoint()
    model = make(endpoint)
    assert model.add("a", TASK, [], 5) and model.add("b", TASK, [turn("x")], 6)
    assert [sampling for _, sampling, _ in endpoint.asked] == [(5, 50, Sampling(0.7, 0.9)), (6, 50, Sampling(0.7, 0.9))]
    started = time.monotonic()
    assert (model.busy, model.step()) == (True, []) and time.monotonic() - started < 0.5
    endpoint.asked[1][2].set_result(Reply(f"Thus:\n```python\n{CODE}```", 30, 12, 1.5, True))
    (answer,) = model.step()
    assert (answer.id, answer.source, answer.tokens, answer.prompt_tokens, answer.seconds) == ("b", CODE, 12, 30, 1.5)
    assert answer.content.startswith("Thus:") and model.busy
    endpoint.asked[0][2].set_result(Reply("I cannot.", 20, 3, 0.5, False))
    (answer,) = model.step()
    assert (answer.id, answer.source, answer.finished, model.busy) == ("a", None, False, False)


@pytest.mark.parametrize(
    ("text", "submitted"),
    [
        (f"<think>A draft:\n```python\n{CODE}```\n", None),
        (f"<think>A draft:\n```python\n{CODE}```\n</think>I have no answer.", None),
        (f"```python\nclass ModelNew: draft\n```\n</think>\n```python\n{CODE}```\n", CODE),
    ],
)
def test_code_among_thoughts_is_no_submission(text, submitted):
    endpoint = Endpoint()
    model = make(endpoint)
    model.add("a", TASK, [], 0)
    endpoint.asked[0][2].set_result(Reply(text, 20, 30, 0.5, False))
    (answer,) = model.step()
    assert (answer.source, answer.content) == (submitted, text)


def test_a_prompt_that_leaves_no_room_is_not_sent():
    endpoint = Endpoint(context=100)
    assert not make(endpoint).add("a", TASK, [], 0)
    assert not endpoint.asked


def test_a_context_without_room_for_any_prompt_is_an_error_that_says_what_to_change():
    with pytest.raises(DrKernelError, match=r"endpoint\.max_answer_tokens: found 50, but the server's context is 50 "):
        make(Endpoint(context=50)).add("a", TASK, [], 0)


def test_a_prompt_that_the_server_finds_too_long_says_nothing_about_others():
    endpoint = Endpoint()
    model = make(endpoint)
    assert model.add("a", TASK, [turn("x" * 1000)], 0)
    endpoint.asked[0][2].set_exception(TooLong("too long"))
    (answer,) = model.step()
    assert (answer.fits, answer.content, answer.source, answer.tokens) == (False, None, None, 0)
    assert model.add("b", Task("u", "class Model: ..."), [turn("x" * 2000)], 0)


def test_a_refusal_counts_once_the_server_accepts_something_else():
    endpoint = Endpoint()
    model = make(endpoint)
    for id in "abc":
        model.add(id, TASK, [], 0)
    endpoint.asked[0][2].set_exception(Refused("status 400: filtered"))
    assert (model.step(), model.busy) == ([], True)
    endpoint.asked[1][2].set_result(Reply("I cannot.", 20, 3, 0.5, True))
    assert [(answer.id, answer.refused) for answer in model.step()] == [("a", "status 400: filtered"), ("b", None)]
    endpoint.asked[2][2].set_exception(Refused("status 422: no"))
    (answer,) = model.step()
    assert (answer.id, answer.fits, answer.refused, model.busy) == ("c", True, "status 422: no", False)


def test_a_server_that_refuses_everything_leaves_no_answers_behind():
    endpoint = Endpoint()
    model = make(endpoint)
    for id in "abc":
        model.add(id, TASK, [], 0)
    endpoint.asked[0][2].set_exception(Refused("status 400: no"))
    assert model.step() == []
    endpoint.asked[1][2].set_exception(DrKernelError("16 requests in a row"))
    with pytest.raises(DrKernelError, match="16 requests in a row"):
        model.step()


def test_what_the_endpoint_gave_up_ends_the_study_and_loses_no_answer():
    endpoint = Endpoint()
    model = make(endpoint)
    for id in "abcd":
        model.add(id, TASK, [], 0)
    for number, outcome in ((0, None), (1, DrKernelError("given up")), (2, None)):
        future = endpoint.asked[number][2]
        future.set_exception(outcome) if outcome else future.set_result(Reply("I cannot.", 20, 3, 0.5, True))
    assert [answer.id for answer in model.step()] == ["a", "c"]
    for _ in range(2):
        with pytest.raises(DrKernelError, match="given up"):
            model.step()
