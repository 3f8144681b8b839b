"""What a study is made of, from its config: tasks, the model that completes them, and what identifies both."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import torch

from drkernel.config import REPOSITORY, EvaluateConfig
from drkernel.objective.rollouts import reward_of
from drkernel.policy.engines.endpoint import ChatEndpoint
from drkernel.policy.model import Policy
from drkernel.policy.templates import TEMPLATE, load_template
from drkernel.rollout import RolloutProgress
from drkernel.scaling.chat import ChatModel
from drkernel.scaling.models import Model, TokenModel
from drkernel.scaling.study_folder import fingerprint
from drkernel.tasks import test_source
from drkernel.tasks.backward import backward_passes
from drkernel.training.build import draw_tasks, make_engine, make_prompts, sampling_of
from drkernel.training.judging import measured_on, workers
from drkernel.training.progress import Progress
from drkernel.training.ranks import Ranks
from drkernel.training.rollout_metrics import make_reward
from drkernel.types import DrKernelError, Task, Verdict

_LINE_EVERY_S = 30.0


def study_tasks(config: EvaluateConfig) -> list[Task]:
    """The tasks of the study, in a fixed order. Raises DrKernelError where `ids` matches none."""
    options = config.tasks
    source, split = test_source(options.source, options.eval_source)
    split = split if config.split == "test" else config.split
    count = None if config.ids and source != "generated" else options.eval_count
    tasks = draw_tasks(options, source, split, count, on_skip=print)
    if config.ids:
        tasks = [task for task in tasks if any(fnmatchcase(task.id, pattern) for pattern in config.ids)]
    if not tasks:
        raise DrKernelError(f"ids={config.ids}: no task of {source} has such an id")
    return backward_passes(tasks, print) if options.backward else tasks


def identity(config: EvaluateConfig) -> dict[str, str]:
    """Which model, device and texts of prompts the study has, as far as the config alone does not say it."""
    found = {"device": measured_on(config)}
    if (template := config.policy.template) and not config.solutions and Path(template).is_file():
        found["template"] = hashlib.sha256(Path(template).read_bytes()).hexdigest()[:16]
    if config.endpoint.url and not config.solutions:
        if not config.endpoint.model:
            patience = f"a server that is down is waited for, {config.endpoint.patience_s:g} s at most"
            print(f"{config.endpoint.url}: asked for its models; {patience} (endpoint.patience_s)", flush=True)
        with open_endpoint(config) as endpoint:
            found["model"] = endpoint.model
    elif not config.solutions:
        found["weights"] = fingerprint(config.policy.path)
    return found


def model_label(config: EvaluateConfig) -> str:
    """What reports call the model, or the saved solutions."""
    elsewhere = (
        Path(config.solutions).resolve().name if config.solutions else config.endpoint.model or config.endpoint.url
    )
    return config.label or elsewhere or config.policy.path.removeprefix(f"{REPOSITORY}/")


def open_endpoint(config: EvaluateConfig) -> ChatEndpoint:
    options = dataclasses.asdict(config.endpoint)
    del options["max_answer_tokens"], options["feedback_tokens"]
    return ChatEndpoint(**options)


@contextlib.contextmanager
def open_model(config: EvaluateConfig, ranks: Ranks, log: Callable[[str], None]) -> Iterator[Model]:
    """The endpoint where there is one, else the policy in an engine of this rank."""
    sampling = sampling_of(config)
    if config.endpoint.url:
        limits = {"max_tokens": config.endpoint.max_answer_tokens, "feedback_limit": config.endpoint.feedback_tokens}
        template = load_template(config.policy.template) if config.policy.template else TEMPLATE
        with open_endpoint(config) as endpoint:
            label = config.label or endpoint.model
            yield ChatModel(label, endpoint, template=template, sampling=sampling, **limits)
            refused = f"; the server does not take {', '.join(sorted(endpoint.not_sent))}" if endpoint.not_sent else ""
            log(f"{endpoint.model}: {endpoint.usage}{refused}")
        return
    torch.set_num_threads(max(1, (config.trainer.threads or torch.get_num_threads()) - workers(config)))
    path, dtype = config.policy.path, torch.bfloat16 if ranks.device.type == "cuda" else torch.float32
    prompts = make_prompts(config)
    limits = {"max_tokens": config.engine.max_answer_tokens, "feedback_limit": config.judge.feedback_tokens}
    with closing(make_engine(config, Policy.load(path, dtype, str(ranks.device)), prompts)) as engine:
        yield TokenModel(model_label(config), engine, prompts, slots=config.engine.slots, sampling=sampling, **limits)


def verdict_reward(config: EvaluateConfig) -> Callable[[Verdict], float]:
    """The configured reward as a function of a verdict."""
    return partial(reward_of, reward=make_reward(config.reward))


def progress_callback(progress: Progress, title: str) -> Callable[[RolloutProgress], None]:
    """Shows a bar on a terminal. Elsewhere it prints a line every 30 s, with the time left."""
    bar, started, last_line, before = progress.rollout(title), time.monotonic(), time.monotonic(), None

    def show(state: RolloutProgress) -> None:
        nonlocal last_line, before
        bar(state)
        if before is None:
            before = state.turns_done
        now, played = time.monotonic(), state.turns_done - before
        if progress.console.is_terminal or now - last_line < _LINE_EVERY_S or not played:
            return
        last_line = now
        left = (state.turns_total - state.turns_done) * (now - started) / played / 60
        progress.log(f"{state.turns_done} of {state.turns_total} turns, about {left:.1f} min left")

    return show
