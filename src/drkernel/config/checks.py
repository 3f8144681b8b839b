"""Settings that contradict each other: each is valid alone, and together they would train nothing, or end in an error
late. All checks raise DrKernelError, naming the keys, what was found and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drkernel.config.sft import weights
from drkernel.types import DrKernelError


def expect_a_gradient(config: Any) -> None:
    """Refuses settings of a training under which no step could train, though all of them would run."""
    config.policy.lora.check()
    if config.stage == "coldstart" and config.policy.lora.rank:
        raise DrKernelError("config: policy.lora.rank is set, but stage=coldstart trains all weights; expected 0")
    samples, temperature = config.trainer.samples, config.engine.temperature
    smallest = config.filters.zero_variance.min_size if config.filters.zero_variance else 1
    if temperature <= 0:
        found = f"engine.temperature={temperature:g} has no log-probabilities to train on"
        raise DrKernelError(f"config: {found}; expected more than 0, the paper's is 1")
    stripped = config.policy.thinking == "stripped"
    if config.algo.ratio_level == "geometric" and (stripped or config.trainer.layout == "turn"):
        cuts = "policy.thinking=stripped" if stripped else "trainer.layout=turn"
        found = f"algo.ratio_level=geometric with {cuts}, which cuts trajectories into rows"
        raise DrKernelError(f"config: {found}; expected algo.ratio_level=turn_geometric")
    if config.stage != "rl" and stripped:
        found = f"policy.thinking=stripped with stage={config.stage}"
        raise DrKernelError(f"config: {found}; expected none or kept")
    if samples < smallest:
        raise DrKernelError(
            f"config: trainer.samples={samples} makes groups that filters.zero_variance drops, since each must have "
            f"min_size={smallest}; expected trainer.samples of at least {smallest}, or filters=none"
        )


def expect_name(name: str) -> None:
    """Refuses a name that would put a run among the folders of all runs, or outside of them."""
    if not name.strip("./ ") or ".." in Path(name).parts or Path(name).is_absolute():
        raise DrKernelError(f"config: name={name}; expected a word, the first part of the run folder")


def expect_room(engine: Any) -> None:
    """Refuses completions (of an EngineConfig) that leave a trajectory no token for its prompt."""
    longest, whole = engine.max_answer_tokens, engine.max_tokens
    if longest >= whole:
        found = f"engine.max_answer_tokens={longest} with engine.max_tokens={whole} leaves no room for a prompt"
        raise DrKernelError(f"config: {found}; expected engine.max_answer_tokens below engine.max_tokens")


def expect_a_correction(config: Any) -> None:
    """Refuses first turns of older weights that nothing corrects, or whose examination the update would disturb."""
    if not config.trainer.overlap:
        return
    if config.algo.importance_cap is None:
        found = "trainer.overlap=true trains on first turns of the weights before"
        raise DrKernelError(f"config: {found}; expected algo.importance_cap, e.g. 2")
    if config.judge.share:
        found = "trainer.overlap=true with judge.share=true has submissions timed on GPUs that train meanwhile"
        raise DrKernelError(f"config: {found}; expected one of them")


def expect_whole_distribution(config: Any) -> None:
    """Refuses truncated sampling in reinforcement learning where nothing weighs tokens by the mass that was left."""
    engine, algo = config.engine, config.algo
    cut = [("top_p", engine.top_p, 1), ("top_k", engine.top_k, 0), ("min_p", engine.min_p, 0)]
    typed = [f"engine.{key}={value:g}" for key, value, off in cut if value != off]
    if config.stage != "rl" or not typed:
        return
    found = f"{' '.join(typed)} samples from a part of the distribution that trains"
    if algo.importance_cap is None or algo.importance_level != "token":
        said = f"algo.importance_cap={'null' if algo.importance_cap is None else algo.importance_cap}"
        expected = (
            "expected e.g. algo.importance_cap=2 with algo.importance_level=token, which weighs tokens by that part"
        )
        raise DrKernelError(f"config: {found}, with {said} and importance_level={algo.importance_level}; {expected}")
    if config.filters.mrs:
        expected = "expected filters without mrs, or the whole distribution"
        raise DrKernelError(f"config: {found}, and filters.mrs would reject it as a mismatch; {expected}")


def expect_a_penalty(config: Any) -> None:
    """Refuses a penalty for long completions that could not be paid; sets the limit that is not given."""
    reward, longest = config.reward, config.engine.max_answer_tokens
    limit = longest if reward.overlong_limit is None else reward.overlong_limit
    penalty, window = reward.overlong_penalty, reward.overlong_window
    if not penalty:
        return
    if not 1 <= limit <= longest:  # no completion is longer: the whole penalty, or any, would never be due
        expected = f"expected 1 to engine.max_answer_tokens={longest}"
        raise DrKernelError(f"config: reward.overlong_limit={limit}; {expected}")
    if not 1 <= window <= limit:
        found = f"reward.overlong_penalty={penalty:g} over reward.overlong_window={window}"
        raise DrKernelError(f"config: {found}; expected a window of 1 to {limit} tokens, e.g. {max(1, limit // 5)}")
    reward.overlong_limit = limit


def expect_a_schedule(trainer: Any) -> None:
    """Refuses settings of the learning rate and the validation (a TrainerConfig) that contradict each other."""
    kind, steps, warm_up = trainer.lr_schedule, trainer.lr_steps, trainer.lr_warmup
    if kind == "constant" and steps is not None:
        expected = "expected trainer.lr_schedule=linear or cosine, or no lr_steps"
        raise DrKernelError(f"config: trainer.lr_steps={steps} ends no schedule that is constant; {expected}")
    if kind != "constant" and (steps is None or steps <= warm_up):
        expected = f"expected a step after the warm-up ({warm_up} steps), e.g. trainer.lr_steps={trainer.steps}"
        found = f"trainer.lr_schedule={kind} ends at trainer.lr_steps={steps or 'null'}"
        raise DrKernelError(f"config: {found}; {expected}")
    if kind == "constant" and warm_up > trainer.steps:
        found = f"trainer.lr_warmup={warm_up} with trainer.steps={trainer.steps} never reaches policy.lr"
        raise DrKernelError(f"config: {found}; expected at most trainer.steps")
    every, share = trainer.validate_every, trainer.stop_below
    if share is not None and not (every and 0 < share < 1):
        found = f"trainer.stop_below={share:g} with trainer.validate_every={every}"
        raise DrKernelError(f"config: {found}; expected a share between 0 and 1, and a validation every few steps")


def expect_trajectories(config: Any) -> None:
    """Refuses a supervised stage (of a Config) that cannot begin, or that could not train."""
    sft = config.sft
    if config.stage == "coldstart":
        _expect_a_set(config)
    if config.stage == "rl":
        return
    if sft.optimizer == "muon" and config.policy.lora.rank:
        found = f"sft.optimizer=muon with policy.lora.rank={config.policy.lora.rank}"
        raise DrKernelError(f"config: {found}; expected sft.optimizer=adamw for adapters")
    if not sft.data and config.stage == "sft":
        raise DrKernelError("config: stage=sft without sft.data; expected a parquet file, a folder or hub:OWNER/NAME")
    if sft.data:
        weights(sft.data)
    if config.policy.prompts != "chat" and sft.messages in ("ready", "own_opening"):
        found = f"sft.messages={sft.messages} with policy.prompts={config.policy.prompts}"
        raise DrKernelError(f"config: {found}; expected policy.prompts=chat, whose template such messages are for")


def _expect_a_set(config: Any) -> None:
    """Refuses a cold start that nobody can mean."""
    if config.plan:
        raise DrKernelError("config: plan=true with stage=coldstart; expected stage=rl or sft, whose memory is planned")
