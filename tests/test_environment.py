"""The environment for other trainers: prompts, verdicts and rewards are those of a rollout with the same answers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future

import pytest

from drkernel.config import RewardConfig
from drkernel.environment import Environment
from drkernel.judge import NotPrepared
from drkernel.objective.rollouts import ignoring_hack_check
from drkernel.policy import load_prompts
from drkernel.policy.engine import BaseEngine, Completion
from drkernel.policy.templates import Template
from drkernel.rollout import EpisodeConfig, rollout
from drkernel.tasks import read_task
from drkernel.training.rollout_metrics import tabulate_rollouts
from drkernel.types import DrKernelError, Task, Verdict
from tests.judge.examples import HERE
from tests.training.chat_policy import chat_tokenizer

TASK = Task("t", "class Model(nn.Module):\n    def forward(self, x):\n        return x\n")
VERDICTS = {
    "faster": Verdict("ok", "faster", speedup=1.7, coverage=0.9),
    "hack": Verdict("hack", "no_triton_launch", "no launch", 2.0, 0.0, evidence={"priced_as": "faster"}),
    "wrong": Verdict("incorrect", "wrong_values", "output 0 differs at [3]"),
    "lost": Verdict("judge_failure", "worker_lost"),
}


class Judge:
    """Says of a submission what it says of itself."""

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        future: Future[Verdict] = Future()
        if "refused" in source:
            future.set_exception(DrKernelError("task t: no longer usable"))
        else:
            future.set_result(next(verdict for word, verdict in VERDICTS.items() if word in source))
        return future

    def check_task(self, task: Task) -> str:
        if task.id == "lost":
            raise NotPrepared("judge: a task could not be prepared")
        if task.id == "bad":
            raise DrKernelError("the reference fails")
        return "zeros" if task.id == "degenerate" else ""


def answer(word: str) -> str:
    return f"I think.\n```python\nclass ModelNew:\n    x = '{word}'\n```"


class Engine(BaseEngine):
    """Answers what a test has written, turn by turn."""

    context, own_kernels = 10**6, False

    def __init__(self, prompts, answers: list[str]):
        self.prompts, self.answers, self.requests = prompts, answers, []

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    def add(self, request) -> None:
        self.requests.append(request)

    def step(self) -> list[Completion]:
        request = self.requests.pop()
        ids = self.prompts.reply(self.answers[int(request.id.split(".")[-1])])
        return [Completion(request.id, ids, [0.0] * len(ids), True)]

    def release(self, id: str) -> None:
        pass


@pytest.mark.parametrize("ending", ["", "</think>I have no answer."])
def test_code_among_thoughts_is_no_submission(ending):
    environment = Environment(Judge(), [TASK])
    environment.reset("t")
    thoughts = f"<think>{answer('faster')}\n{ending}"
    _, reward, _, info = environment.step(thoughts, finished=bool(ending))
    assert (info.source, info.verdict.reason, reward) == (None, "no_code", 0.0)
    assert environment.rewards([thoughts, f"{thoughts}</think>{answer('faster')}"], ["t", "t"])[0] == 0.0


@pytest.mark.parametrize("reward", ["binary", "speedup", "profiling"])
@pytest.mark.parametrize(
    ("answers", "hack_check"),
    [
        ([answer("wrong"), "no code at all", answer("faster")], True),
        ([answer("hack"), answer("faster"), answer("wrong")], True),
        ([answer("hack"), answer("faster")], False),
        ([answer("faster"), answer("lost"), answer("faster")], True),
        ([answer("wrong"), answer("refused"), answer("faster")], True),
    ],
)
def test_an_episode_is_what_a_rollout_makes_of_the_same_answers(answers, hack_check, reward):
    prompts, judge = load_prompts("chat", chat_tokenizer()), Judge()
    view = (lambda verdict: verdict) if hack_check else ignoring_hack_check
    config = EpisodeConfig(len(answers), 10**4, 60, feedback_view=view)
    (trajectory,), _ = rollout(Engine(prompts, answers), judge, prompts, [TASK], 1, config, seed=0)
    table = tabulate_rollouts(RewardConfig(name=reward, hack_check=hack_check), [trajectory])
    options = {"reward": reward, "hack_check": hack_check, "feedback_tokens": 60, "count": prompts.count}
    environment = Environment(judge, [TASK], turns=len(answers), **options)
    messages, whole = environment.reset("t"), []
    for number, turn in enumerate(trajectory.turns):
        whole += turn.prompt_ids
        shown = prompts.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert prompts.tokenizer.decode(whole) == shown
        whole += turn.response_ids
        messages, rewarded, done, info = environment.step(answers[number])
        assert (info.turn, info.source, info.verdict) == (number, turn.source, turn.verdict)
        assert rewarded == (None if turn.verdict.is_judge_failure else table.rewards[0, number].item())
        assert done == (number + 1 == len(trajectory.turns))
    assert messages[-1] == {"role": "assistant", "content": answers[len(trajectory.turns) - 1]}
    assert len(info.rewards) == len(trajectory.turns)


def test_the_texts_and_the_options_of_a_reward_are_chosen():
    template = Template(system="Be brief.", opening="{source}", revision="{feedback}", cut="Cut. ")
    environment = Environment(Judge(), [TASK], reward="speedup", cap=1.5, scale=0.5, template=template, turns=2)
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TASK.source.strip()}]
    assert environment.reset(TASK) == environment.first("t") == first
    messages, reward, _, _ = environment.step(answer("wrong"), finished=False)
    assert messages[-1]["content"] == "Cut. wrong: wrong_values: output 0 differs at [3]" and reward == 0
    assert environment.step(answer("faster"))[1] == 0.5 * (1 + 1.5)


def test_what_an_environment_gave_away_is_not_changed_by_later_steps():
    environment = Environment(Judge(), [TASK])
    first = environment.reset("t")
    environment.step(answer("wrong"))
    assert len(first) == 1


def test_steps_need_an_episode():
    environment = Environment(Judge(), [TASK], turns=1)
    with pytest.raises(DrKernelError, match="no episode is under way, expected reset before step"):
        environment.step("")
    environment.reset("t")
    assert environment.step("")[2]
    with pytest.raises(DrKernelError, match="no episode is under way"):
        environment.step("")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "best"}, "reward is 'best', expected one of binary, speedup, profiling"),
        ({"reward": "binary", "cap": 2.0}, "found cap; the reward binary has scale"),
        ({"turns": 0}, "turns is 0, expected 1 or more"),
        ({"tasks": [TASK, TASK]}, "two tasks of one id"),
    ],
)
def test_what_cannot_be_an_environment_says_so(options, message):
    with pytest.raises(DrKernelError, match=message):
        Environment(Judge(), **{"tasks": [TASK], **options})


def test_tasks_that_the_judge_refuses_are_no_rows_and_begin_no_episode():
    others = [Task(id, TASK.source) for id in ("bad", "degenerate")]
    environment, skipped = Environment(Judge(), [TASK, *others]), []
    assert environment.rows(skipped.append) == [{"prompt": environment.first("t"), "task": "t"}]
    assert skipped == ["task bad: the reference fails", "task degenerate: degenerate: zeros"]
    for begin in (environment.rows, lambda: environment.reset("bad")):
        with pytest.raises(DrKernelError, match="task bad: the reference fails"):
            begin()
    with pytest.raises(DrKernelError, match="found the task 'x', expected one of its 3 ids"):
        environment.reset("x")
    with pytest.raises(NotPrepared, match="task lost: judge"):
        environment.reset(Task("lost", ""))


def test_rewards_of_many_answers_are_a_list_for_a_trainer():
    environment = Environment(Judge(), [TASK])
    words = ["faster", "wrong", "lost", "hack"]
    columns = {"task": ["t"] * 5, "prompts": ["p"] * 5, "completion_ids": [[1]] * 5}
    expected = [1 + 1.7 + 0.9, 0.0, None, 0.0, 0.0]
    texts = [*map(answer, words), "no code"]
    found = environment.rewards(completions=texts, **columns)
    assert found == pytest.approx(expected)
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    assert environment.rewards(completions=chats, **columns) == found and environment.rewards.__name__ == "rewards"


@pytest.mark.slow
def test_an_environment_needs_nothing_but_what_the_judge_needs():
    """`pip install .` is enough: no tokenizer, no engine, no Hydra."""
    heavy = "{'transformers', 'hydra', 'omegaconf', 'vllm', 'yaml'}"
    program = f"import sys, drkernel.environment; print(*{heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stdout + done.stderr


@pytest.mark.slow
def test_a_real_judge_rewards_a_real_answer():
    from drkernel.judge import Judge as RealJudge

    with RealJudge(device="simulated", workers=1) as judge:
        environment = Environment(judge, [read_task(HERE / "tasks/bias_relu.py", "bias_relu")], turns=2)
        environment.reset("bias_relu")
        source = (HERE / "submissions/honest/84_elementwise.py").read_text()
        messages, reward, done, info = environment.step(f"```python\n{source}```")
        assert info.verdict.ok and not done and messages[-1]["content"].count("correct, ") == 1
        expected = 1 + min(info.verdict.speedup, 3) + (info.verdict.coverage if info.verdict.speedup >= 1 else 0)
        assert reward == pytest.approx(expected)
