"""Keys that other settings leave without effect: refused where somebody typed them, whatever presets say."""

import pytest

from drkernel.config import Config, EvaluateConfig
from drkernel.config.choices import CHOICES
from drkernel.config.effects import UNREAD, UNUSED_WHERE, expect_effects, expect_read
from drkernel.config.keys import ADDED, valid_keys
from drkernel.types import DrKernelError
from tests.configs import evaluate_config, train_config

SUPERVISED, VALIDATES = "stage=sft sft.data=x", "trainer.validate_every=9"
TRAINING = [
    *(
        (typed, stage, "trainer.validate_every=0", "trainer.validate_every=100", f"{stage} {VALIDATES}")
        for stage, typed in (
            (SUPERVISED, "reward=binary"),
            (SUPERVISED, "judge=simulated"),
            (SUPERVISED, "judge.timed_shapes=2"),
            (SUPERVISED, "reward.hack_check=false"),
            (SUPERVISED, "tasks.count=9"),
            ("coldstart=seed_8m", "reward=binary"),
            ("coldstart=seed_8m", "tasks=handwritten"),
        )
    ),
    ("policy=qwen3_0.6b", "coldstart=seed_8m", "stage=coldstart", "coldstart.hidden", SUPERVISED),
    ("algo.clip_low=0.1", "", "algo.updates=1", "algo.updates of 2 or more", "algo.updates=2"),
    ("algo.clip_high=0.1", "", "algo.updates=1", "algo.updates of 2 or more", "algo.updates=2"),
    ("algo.dual_clip=2", "", "algo.updates=1", "algo.updates of 2 or more", "algo=gspo"),
    ("algo.ratio_level=geometric", "", "algo.updates=1", "algo.updates of 2 or more", "algo.updates=2"),
    ("algo.loss_scale=9", "", "algo.aggregation=token_mean", "token_sum_over_constant", "+arm=paper"),
    ("algo.importance_level=turn", "", "algo.importance_cap=null", "algo.importance_cap=2", "algo.importance_cap=2"),
    (
        "reward.overlong_window=9",
        "",
        "reward.overlong_penalty=0",
        "reward.overlong_penalty=1",
        "reward.overlong_penalty=1",
    ),
    (
        "reward.overlong_limit=99",
        "",
        "reward.overlong_penalty=0",
        "=1",
        "reward.overlong_penalty=1 reward.overlong_window=9",
    ),
    ("judge.across_shapes=worst", "", "judge.timed_shapes=1", "judge.timed_shapes of 2", "judge.timed_shapes=2"),
    ("judge.gpu=A100", "judge=cuda", "judge.device=cuda", "judge.device=simulated", ""),
    ("judge.workers=3", "judge=remote", "judge.servers=", "an option of `drkernel-judge --serve`", ""),
    ("judge.token_file=x", "", "judge.servers=null", "judge.servers=[http://", "judge=remote"),
    ("engine.kv_cache_gib=9", "engine=graphs", "engine.name=graphs", "engine.name=vllm", "engine=auto"),
    ("engine.agreement=1", "engine=transformers", "engine.name=transformers", "vllm or graphs", "engine=graphs"),
    (
        "trainer.lr_end=0.5",
        "",
        "trainer.lr_schedule=constant",
        "linear or cosine",
        "trainer.lr_schedule=cosine trainer.lr_steps=9",
    ),
    (
        "trainer.best_by=correct",
        "",
        "trainer.validate_every=0",
        "trainer.validate_every=10",
        "trainer.validate_every=2",
    ),
    ("policy.lora.alpha=9", "", "policy.lora.rank=0", "policy.lora.rank=32", "policy.lora.rank=8"),
    ("sft.batch_size=9", "coldstart=seed_8m", "sft.batch_tokens=65536", "sft.batch_tokens=null", SUPERVISED),
    ("sft.loss_every=9", f"{SUPERVISED} sft.held_out=0", "sft.held_out=0", "sft.held_out above 0", SUPERVISED),
    ("trainer.eval_samples=9", SUPERVISED, "trainer.validate_every=0", "=100", f"{SUPERVISED} {VALIDATES}"),
    ("trainer.turns=2", "coldstart=seed_8m", "trainer.validate_every=0", "=100", f"coldstart=seed_8m {VALIDATES}"),
    ("logger.samples=9", "logger=none", "logger.wandb=disabled", "logger=wandb", "logger=offline"),
]
"""(typed, other settings, where it does nothing, what is expected, settings under which it is read)."""
STUDIES = [
    ("endpoint.model=x", "", "endpoint.url=null", "endpoint.url=http", "endpoint.url=http://h/v1"),
    ("policy.path=x", "endpoint.url=http://h/v1", "endpoint.url", "endpoint.model", ""),
    ("engine.slots=9", "endpoint.url=http://h/v1", "endpoint.url", "endpoint.concurrency", ""),
    ("engine.max_answer_tokens=9", "endpoint.url=http://h/v1", "endpoint.url", "endpoint.max_answer_tokens", ""),
    ("judge.feedback_tokens=9", "endpoint.url=http://h/v1", "endpoint.url", "endpoint.feedback_tokens", ""),
    ("judge.gpu=A100", "judge=cuda", "judge.device=cuda", "judge.device=simulated", ""),
    ("judge.across_shapes=worst", "", "judge.timed_shapes=1", "judge.timed_shapes of 2", "judge.timed_shapes=2"),
    ("scaling.budget=9", "scaling=single", "scaling.name=single", "scaling.trials", "scaling=parallel"),
    ("scaling.patience=2", "scaling=single", "scaling.name=single", "scaling=parallel", "scaling=managed"),
    ("scaling.chains=2", "scaling=managed", "scaling.name=managed", "scaling=mixture", "scaling=mixture"),
    ("scaling.window=2", "scaling=parallel", "scaling.name=parallel", "scaling=managed", "scaling=managed"),
    ("scaling.by=speedup", "scaling.keep=last", "scaling.keep=last", "scaling.keep=top", "scaling.keep=window"),
    ("scaling.trials=3", "solutions=x", "solutions=x", "no solutions", "scaling=parallel"),
    ("scaling=parallel", "solutions=x", "solutions=x", "no solutions", "scaling=mixture"),
    ("policy.path=x", "solutions=x", "solutions=x", "no solutions", ""),
    ("engine.slots=3", "solutions=x", "solutions=x", "no solutions", ""),
]
CASES = [(train_config, *case) for case in TRAINING] + [(evaluate_config, *case) for case in STUDIES]


@pytest.mark.parametrize(("load", "override", "others", "where", "expected", "read"), CASES)
def test_a_typed_key_without_effect_is_refused_and_the_message_says_what_to_set(
    load, override, others, where, expected, read
):
    typed = [(override.partition("=")[0], override)]
    with pytest.raises(DrKernelError) as raised:
        expect_effects(load(*others.split(), override), typed)
    said = str(raised.value)
    assert (
        said.startswith(f"config: {override} does nothing with {where}")
        and expected in said.partition("; expected ")[2]
    )
    expect_effects(load(*others.split(), override), [])  # where a preset says it
    if load is train_config or read:
        expect_effects(load(*read.split(), override), typed)


def test_what_a_cold_start_reads_to_make_its_set_is_let_through():
    typed = ["judge=simulated", "judge.timed_shapes=2", "reward.hack_check=false", "tasks.generator=graphs"]
    typed += ["policy.prompts=chat"]
    expect_effects(train_config("coldstart=seed_8m", *typed), [(each.partition("=")[0], each) for each in typed])


def test_every_key_of_the_table_exists():
    keys = {*valid_keys(Config), *valid_keys(EvaluateConfig)}
    assert {key for rule in UNUSED_WHERE for key in rule.keys} <= keys
    tried = {case[1].partition("=")[0] for case in CASES}
    assert all(tried.intersection(rule.keys) for rule in UNUSED_WHERE), "each rule is tried"


def test_keys_that_a_stage_reads_are_let_through():
    read = {
        "rl": ["trainer.steps", "policy", "algo", "group", "arm"],
        "sft": [
            "policy",
            "policy.template",
            "trainer.weight_decay",
            "trainer.turns",
            "engine",
            "sft.lr",
            "judge.share",
        ],
        "coldstart": [
            "coldstart.tasks",
            "sft.lr",
            "sft.data",
            "judge",
            "judge.gpu",
            "trainer.turns",
            "tasks.dtypes",
            "seed",
        ],
    }
    for stage, keys in read.items():
        expect_read(stage, [(key, f"{key}=x") for key in keys])
    assert set(UNREAD) == set(CHOICES["stage"])
    assert {key for keys in UNREAD.values() for key in keys} <= {*valid_keys(Config), *ADDED}
