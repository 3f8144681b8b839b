"""The command line: every combination composes, and what is wrong is named in one line with the nearest right word."""

import dataclasses
import math
import sys
import typing
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from drkernel.config import Config, EvaluateConfig, errors, load_run
from drkernel.config.command_line import without_secret
from drkernel.config.conversion import to_yaml
from drkernel.config.effects import expect_read
from drkernel.config.folder_names import slug
from drkernel.config.judge import judge_options
from drkernel.config.keys import MAY_CHANGE, SECRET
from drkernel.config.ranges import OF_STUDIES, RANGES
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS
from drkernel.objective.rewards import REWARDS
from drkernel.training.rollout_metrics import make_estimator, make_reward
from drkernel.types import DrKernelError
from tests import commands
from tests.configs import composed, every_variant, variants
from tests.configs import train_config as load

ROOT = Path(__file__).parents[2]
NAMES = [*GROUP_FILTERS, *TURN_FILTERS, *TOKEN_FILTERS]
FILTERS = ("none", "full", *NAMES, *(f"[{one},{other}]" for one, other in combinations(NAMES, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "reward", "filters"), list(product(ADVANTAGES, REWARDS, FILTERS)))
def test_every_algorithm_composes_with_every_reward_and_every_filter(algo, reward, filters):
    config = load(f"algo={algo}", f"reward={reward}", f"filters={filters}")
    assert (config.algo.advantage, config.reward.name) == (algo, reward)
    chosen = {name for name in NAMES if getattr(config.filters, name)}
    expected = {"none": "", "full": "zero_variance,mrs,prs"}.get(filters, filters).strip("[]")
    assert chosen == set(filter(None, expected.split(",")))


ADDED = ("arm", "group", "sweep")
"""Groups that a run has only where it asks for them: `+sweep=ablation`."""
ELSEWHERE = ("scaling", "hydra")
"""Groups of evaluate.py (tests/test_evaluate.py) and of Hydra itself (tests/slurm/)."""


GROUPS = sorted(p.name for p in (ROOT / "conf").iterdir() if p.is_dir() and p.name not in ELSEWHERE)


@pytest.mark.parametrize("overrides", every_variant(GROUPS, ADDED), ids=" ".join)
def test_all_variants_of_all_groups_compose_together(overrides):
    load(*overrides)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_variant_of_every_group_composes_alone(group):
    for (override,) in every_variant([group], ADDED):
        load(override)


@pytest.mark.parametrize(
    "path",
    [path for group in (*GROUPS, "scaling") for path in variants(group)],
    ids=lambda path: f"{path.parent.name}={path.stem}",
)
def test_every_variant_is_short_and_says_what_it_changes(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 15 and any(line.startswith("# ") for line in lines)


def test_the_papers_recipe_is_the_full_filter():
    filters = load("filters=full").filters
    assert (filters.mrs.level, filters.mrs.lower, filters.mrs.upper, filters.mrs.veto) == (
        "geometric",
        0.999,
        1.001,
        1e-4,
    )
    assert filters.prs.width == 0.1 and 0.5 <= filters.prs.tau <= 0.65


def test_options_are_those_of_the_functions_and_reach_them():
    config = load("reward=speedup", "reward.cap=2", "algo=grpo", "algo.std=true", "filters=[zero_variance,mrs]")
    right, speed = torch.tensor([True]), torch.tensor([9.0])
    assert make_reward(config.reward)(right, speed, speed).item() == 3.0
    assert make_estimator(config.algo).keywords == {"std": True, "zero_alone": False}
    assert config.filters.chosen(GROUP_FILTERS)["zero_variance"].keys() == {"min_std", "min_size", "turns"}
    assert config.filters.chosen(TOKEN_FILTERS)["mrs"]["level"] == "geometric"
    assert config.filters.max_refills == 2 and not config.filters.chosen(TURN_FILTERS)


def test_every_registered_name_has_a_yaml_file_and_the_other_way_round():
    def files(group):
        return {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}

    assert files("algo") == {*ADVANTAGES, "gspo"} and files("reward") == set(REWARDS)
    assert files("filters") - {"none", "full", "oversampled"} == set(NAMES)


def test_what_a_resumed_run_may_change_is_no_part_of_its_folders_name():
    hydra = composed("train", hydra=True).hydra
    assert tuple(hydra.job.config.override_dirname.exclude_keys) == (*MAY_CHANGE, SECRET)


def test_a_secret_is_the_judge_s_alone_and_files_have_its_digest(monkeypatch):
    monkeypatch.setenv("OF_A_TEST", "not to be read")
    config = load("judge.secret=${oc.env:OF_A_TEST}")
    assert judge_options(config)["secret"] == b"not to be read"
    kept, other = to_yaml(config), to_yaml(load("judge.secret=another"))
    assert "not to be read" not in kept and "another" not in other and kept != other
    assert config.judge.secret == "not to be read", "the judge still has it"
    assert without_secret(["train.py", "judge.secret=abc", "+judge.secret=d", "seed=1"]) == [
        "train.py", "judge.secret=...", "+judge.secret=...", "seed=1",
    ]  # fmt: skip


def test_without_a_secret_of_its_own_a_run_can_be_repeated_by_its_seed():
    assert judge_options(load())["secret"] == judge_options(load())["secret"] != judge_options(load("seed=1"))["secret"]


def test_a_run_folder_is_named_after_its_overrides_and_never_after_the_time():
    assert slug("algo=grpo,seed=1") == "algo=grpo,seed=1"
    assert slug("") == "default"
    assert slug("tasks.source=/data/my tasks") == "tasks.source=-data-my-tasks"
    assert len(slug("x" * 500)) < 128


WRONG = [
    ("algo.gama=1", ["algo.gama", "algo.gamma"]),
    ("+trainer.stepz=1", ["trainer.stepz", "trainer.steps"]),
    ("+arm=gamma0 trainer.steps=many", ["trainer.steps=many", "Integer"]),
    ("+arm=gama0", ["gama0", "gamma0"]),
    ("algo=3", ["algo=3", "must be a string"]),
    ("filters=[mrs,prss]", ["filters=prss is none of", "zero_variance", "did you mean 'prs'"]),
    ("plan", ["plan has no value; expected plan=VALUE"]),
    ("endpoint.url=http://a/v1", ["endpoint.url=http://a/v1 is for evaluate.py"]),
    ("hydra/launcher=slrum", ["hydra/launcher=slrum is none of", "did you mean 'slurm'"]),
    ("arm=trloo", ["arm=trloo is added to a run; expected +arm=trloo"]),
    ("name=", ["name=; expected a word"]),
    ("alog=grpo", ["alog", "algo"]),
    ("algo=tlroo", ["tlroo", "trloo"]),
    ("trainer.steps=many", ["trainer.steps", "many", "Integer"]),
    ("trainer.samples=0", ["trainer.samples", "1 or more"]),
    ("seed=-1", ["config: seed=-1; expected 0 or more"]),
    ("algo.aggregation=token_men", ["token_men", "token_mean"]),
    ("algo.ratio_level=turn", ["algo.ratio_level", "turn_geometric"]),
    ("algo.ratio_level=geometric trainer.layout=turn", ["trainer.layout=turn", "turn_geometric"]),
    ("algo.entropy_coef=-1", ["algo.entropy_coef=-1", "0 or more"]),
    ("reward.overlong_penalty=1", ["reward.overlong_window=0", "1 to 400 tokens", "e.g. 80"]),
    ("filters.zero_variance.oversample=0.5", ["oversample=0.5", "1 or more"]),
    ("reward.overlong_penalty=-1", ["reward.overlong_penalty=-1", "0 or more"]),
    ("trainer.samples=1", ["trainer.samples=1", "zero_variance", "min_size=2", "filters=none"]),
    ("engine.temperature=0", ["engine.temperature=0", "more than 0"]),
    ("algo.importance_cap=-1", ["algo.importance_cap=-1", "more than 0, or null"]),
    ("trainer.overlap=true algo.importance_cap=0", ["algo.importance_cap=0", "more than 0, or null"]),
    ("algo.importance_cap=nan", ["algo.importance_cap=nan", "more than 0, or null"]),
    ("algo.loss_scale=0", ["algo.loss_scale=0", "more than 0"]),
    ("trainer.max_grad_norm=0", ["trainer.max_grad_norm=0; expected more than 0; inf clips nothing"]),
    ("trainer.max_grad_norm=-1", ["trainer.max_grad_norm=-1; expected more than 0"]),
    ("reward.cap=-3", ["reward.cap=-3; expected more than 0"]),
    ("algo.gamma=-1", ["algo.gamma=-1; expected 0 to 1"]),
    ("algo.clip_low=-1", ["algo.clip_low=-1; expected 0 or more"]),
    ("trainer.weight_decay=-1", ["trainer.weight_decay=-1; expected 0 or more"]),
    ("policy.lr=0", ["policy.lr=0; expected more than 0"]),
    ("policy.lr=nan", ["policy.lr=nan; expected more than 0"]),
    ("engine.max_answer_tokens=4000", ["max_answer_tokens=4000 with engine.max_tokens=2048 leaves no room", "below"]),
    ("engine.max_tokens=64", ["engine.max_answer_tokens=400 with engine.max_tokens=64", "below engine.max_tokens"]),
    ("trainer.steps=0", ["trainer.steps=0; expected 1 or more"]),
    ("trainer.threads=-3", ["trainer.threads=-3; expected 1 or more"]),
    ("judge.timeout_s=0", ["judge.timeout_s=0; expected more than 0"]),
    ("algo.updates=0", ["algo.updates=0", "1 or more"]),
    ("trainer.eval_samples=0", ["trainer.eval_samples=0", "1 or more"]),
    ("trainer.micro_batch_tokens=0", ["trainer.micro_batch_tokens=0", "1 or more"]),
    ("engine.max_answer_tokens=0", ["engine.max_answer_tokens=0", "1 or more"]),
    ("algo=trloo algo.std=true", ["algo.std=true does nothing with algo.advantage=trloo", "grpo"]),
    ("reward=binary reward.cap=2", ["reward.cap=2 does nothing with reward.name=binary", "speedup, profiling"]),
    ("algo.importance_level=turn", ["algo.importance_level=turn does nothing", "algo.importance_cap"]),
    ("judge.across_shapes=worst", ["judge.across_shapes=worst does nothing", "judge.timed_shapes of 2"]),
    ("reward.capp=1", ["reward.capp", "reward.cap"]),
    ("policy.lora.rnk=8", ["policy.lora.rnk", "policy.lora.rank"]),
    ("stage=coldstart coldstart.unjudged=-5", ["coldstart.unjudged=-5", "0 or more"]),
    ("stage=coldstart plan=true", ["plan=true with stage=coldstart", "rl or sft"]),
    ("trainer.save_every=0", ["trainer.save_every", "1 or more"]),
    ("filters=[prs] filters.prs.tau=nan", ["filters.prs.tau=nan; expected 0 to 1"]),
    ("filters=[prs] filters.prs.speedup_from=-1", ["filters.prs.speedup_from=-1; expected 0 or more"]),
    ("filters=[mrs] filters.mrs.veto=2", ["filters.mrs.veto=2; expected 0 or more and below 1"]),
    ("filters=[mrs] filters.mrs.lower=2", ["filters.mrs.lower=2; expected more than 0 and at most 1"]),
    ("filters=[mrs] filters.mrs.lower=1 filters.mrs.upper=0.5", ["filters.mrs.upper=0.5; expected 1 or more"]),
    ("policy.lr=1e30", ["policy.lr=1e+30; expected more than 0 and at most 1"]),
    ("engine.temperature=1e30", ["engine.temperature=1e+30; expected 0 to 10"]),
    ("policy.lora.rank=8 policy.lora.alpha=inf", ["policy.lora.alpha=inf", "expected"]),
    ("trainer.lr_warmup=1000", ["trainer.lr_warmup=1000 with trainer.steps=16 never reaches policy.lr"]),
    ("trainer.gpus=1000000000", ["trainer.gpus=1000000000; expected 1 to 4096"]),
    ("name=../x", ["name=../x; expected a word"]),
    ("filters.prs.tau=0.3", ["filters.prs.tau=0.3 does nothing: filters.prs is off", "filters=[zero_variance,prs]"]),
    ("filters=none filters.zero_variance.min_std=0.1", ["filters.zero_variance is off; expected filters=[zero_var"]),
    ("filters=[prs] filters.mrs.upper=2", ["filters.mrs.upper=2 does nothing", "expected filters=[prs,mrs]"]),
    ("learning_rate=1", ["did you mean 'policy.lr' or 'sft.lr'?"]),
    ("trainer.lr=1", ["did you mean 'policy.lr' or 'sft.lr'?"]),
    ("sft.lr_warmup=0.1", ["did you mean 'trainer.lr_warmup' or 'sft.lr_warmup_share'?"]),
    ("judge.memory_gb=9", ["did you mean 'judge.memory_gib'?"]),
    ("algo.beta=1", ["did you mean 'algo.kl_coef'?"]),
    ("engine.gpu_memory_utilization=1", ["did you mean 'engine.kv_cache_gib'?"]),
    ("trainer.temperature=1", ["did you mean 'engine.temperature'?"]),
    ("model=x", ["did you mean 'policy.path' or 'policy'?"]),
    ("trainer.resume=true", ["unknown key 'trainer.resume'; the same command resumes a run"]),
    ("trainer.top_p=1", ["did you mean 'engine.top_p'?"]),
    ("policy.lora.rank=8 stage=coldstart", ["policy.lora.rank", "stage=coldstart"]),
    ("judge.gpu=H20", ["judge.gpu", "H20", "H200"]),
    ("judge.criterion=kernelbanch", ["judge.criterion", "kernelbanch", "kernelbench"]),
    ("judge.across_shapes=worse", ["judge.across_shapes", "worse", "geometric, worst"]),
    ("judge.timed_shapes=0", ["judge.timed_shapes", "0", "1 or more"]),
    ("judge.timed_shapes=5 plan=true", ["judge: timed_shapes is 5", "1 to 4"]),
    ("judge.timed_shapes=2 judge.shapes=ignore plan=true", ["judge: timed_shapes (2)", "'reject' or 'penalise'"]),
    ("stage=sft sft.data=x trainer.steps=5", ["trainer.steps=5 does nothing with stage=sft", "sft.max_steps"]),
    ("trainer.overlap=true", ["trainer.overlap=true trains on", "algo.importance_cap"]),
    ("trainer.overlap=true algo.importance_cap=2 judge.share=true", ["judge.share=true", "expected one of them"]),
    ("engine.tensor_parallel=0", ["engine.tensor_parallel=0", "1 or more"]),
    ("stage=sft sft.data=x algo=grpo", ["algo=grpo does nothing", "stage=rl"]),
    ("sft.data=x", ["sft.data=x does nothing with stage=rl", "expected stage=sft"]),
    ("tasks.generator=7", ["tasks.generator: found 7, which is called written now; expected written"]),
    ("tasks.generator=graf", ["tasks.generator: found graf; expected one of operators, graphs, programs"]),
    ("stage=coldstart policy.template=x.yaml", ["policy.template=x.yaml does nothing", "policy.prompts=chat"]),
]
"""What composing and checking a configuration refuses, and words of the line that says why."""
EACH_KIND = (
    *("algo.gama=1", "algo=3", "algo=tlroo"),  # refused by Hydra, in three ways
    *("+arm=gamma0 trainer.steps=many", "trainer.samples=0"),  # by types and ranges
    *("judge.timed_shapes=5 plan=true", "sft.data=x"),  # by what goes together, and by what was typed
    "name=../x",  # as Hydra makes the folder of the run
)
"""Those of WRONG that are given to the real command."""
WRONG_LATER = [
    ("policy.lora.rank=8 policy.lora.targets=[query]", ["policy.lora.targets", "query", "q_proj"]),
    ("engine.tensor_parallel=2", ["engine.tensor_parallel=2 with 1 ranks on a node", "that 2 divides"]),
    ("policy.path=/nowhere/policy", ["/nowhere/policy"]),
    ("stage=sft policy.path=/nowhere sft.data=/nowhere.parquet", ["sft.data=/nowhere.parquet: found no such file"]),
    ("tasks.source=/nowhere/tasks.jsonl", ["/nowhere/tasks.jsonl"]),
    ("tasks.families=[nothing]", ["nothing"]),
    ("hydra.run.dir=/proc/nowhere/run", ["run_dir: ", "/proc/nowhere", "hydra.run.dir"]),
    ("run_dir=/proc/nowhere/run", ["config: run_dir=/proc/nowhere/run: ", "a folder that can be written"]),
]
"""What only the command finds out, as it builds what the configuration describes."""


def expect_one_line(message: str, words: list[str]) -> None:
    lines = message.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]


@pytest.mark.parametrize(("override", "words"), WRONG)
def test_a_wrong_configuration_is_one_clear_line_and_exit_code_2(override, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", *override.split(), "logger=none"])
    with pytest.raises(SystemExit) as end, errors.one_line_errors(Config):
        tree = composed("train", *sys.argv[1:], hydra=True)
        monkeypatch.setattr(HydraConfig.instance(), "cfg", tree)  # what was typed
        load_run(OmegaConf.masked_copy(tree, [key for key in tree if key != "hydra"]))
    assert end.value.code == 2
    expect_one_line(capsys.readouterr().err, words)


@pytest.mark.parametrize("program", ["train", "evaluate"])
def test_a_name_that_leads_elsewhere_is_refused_before_a_folder_is_made_of_it(program):
    """Hydra makes `hydra.run.dir` before the program's first line."""
    folder = lambda name: str(OmegaConf.select(composed(program, name, hydra=True), "hydra.run.dir"))
    assert folder("name=mine").startswith("outputs/mine/")
    for name in ("name=../x", "name=/x", "name=."):
        with pytest.raises(OmegaConfBaseException) as raised:
            folder(name)
        assert errors.explain([name], raised.value, Config) == (
            f"config: {name}; expected a word, the first part of the run folder"
        )


@pytest.mark.slow
@pytest.mark.xdist_group("commands")  # one process imports what they need
@pytest.mark.parametrize(("override", "words"), [each for each in WRONG if each[0] in EACH_KIND] + WRONG_LATER)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(override, words, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    done = commands.run([str(ROOT / "train.py"), *override.split(), "logger=none"], cwd=here)
    assert done.returncode == 2, done.stderr
    expect_one_line(done.stderr, words)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()] and [*tmp_path.iterdir()] == [here]


@pytest.mark.parametrize(
    ("stage", "override", "instead"),
    [
        ("sft", "trainer.steps=5", "sft.epochs or sft.max_steps"),
        ("sft", "trainer.lr_schedule=cosine", "sft.lr, sft.lr_warmup_share or sft.lr_end"),
        ("sft", "trainer.lr_end=0", "sft.lr, sft.lr_warmup_share or sft.lr_end"),
        ("sft", "policy.lr=1", "sft.lr"),
        ("sft", "trainer.save_every=9", "sft.save_every"),
        ("sft", "reward.overlong_penalty=1", "stage=rl"),
        ("sft", "filters.mrs.level=token", "stage=rl"),
        ("sft", "coldstart.tasks=9", "coldstart=seed_3m"),
        ("rl", "coldstart.tasks=9", "coldstart=seed_3m"),
        ("coldstart", "policy.path=x", "coldstart.hidden, layers and kv_heads"),
        ("coldstart", "policy.thinking=kept", "policy.prompts=chat"),
        ("coldstart", "policy.lr=1", "sft.lr"),
        ("coldstart", "trainer.steps=9", "sft.max_steps"),
        ("coldstart", "algo=grpo", "stage=rl"),
    ],
)
def test_a_key_that_a_stage_does_not_read_is_refused(stage, override, instead):
    with pytest.raises(DrKernelError) as raised:
        expect_read(stage, [(override.partition("=")[0], override)])
    said = str(raised.value)
    assert said.startswith(f"config: {override} does nothing with stage={stage}; expected ") and instead in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["overlong_limit=0"], "overlong_limit=0; expected 1 to engine.max_answer_tokens=400"),
        (["overlong_limit=-5"], "overlong_limit=-5; expected 1 to"),
        (["overlong_limit=401", "overlong_window=80"], "overlong_limit=401; expected 1 to"),
        (["overlong_limit=3"], "expected a window of 1 to 3 tokens, e.g. 1"),
        (["overlong_limit=40", "overlong_window=41"], "expected a window of 1 to 40 tokens, e.g. 8"),
        (["overlong_penalty=nan", "overlong_window=80"], "overlong_penalty=nan; expected 0 or more"),
        (["overlong_penalty=inf", "overlong_window=80"], "overlong_penalty=inf; expected 0 or more"),
    ],
)
def test_a_penalty_for_length_that_could_not_be_paid_is_refused(given, words):
    with pytest.raises(DrKernelError, match=words):
        load("reward.overlong_penalty=1", *(f"reward.{each}" for each in given))


def test_the_widest_values_that_somebody_may_mean_are_taken():
    wide = load("trainer.max_grad_norm=inf", "algo.gamma=0", "trainer.weight_decay=0", "reward.cap=inf")
    assert wide.trainer.max_grad_norm == math.inf and wide.algo.gamma == 0


def test_every_number_has_a_range_or_may_be_any():
    any_number = {"tasks.seed", "trainer.lr_steps"} | {"trainer.stop_below", "reward.overlong_limit"}  # by other keys
    for kind, ranges in ((Config, RANGES), (EvaluateConfig, RANGES | OF_STUDIES)):
        keys = {key for key in numbers(kind) if not key.startswith("policy.lora.")}  # LoraConfig.check
        assert keys - ranges.keys() - any_number == set()
    assert (RANGES | OF_STUDIES).keys() <= {*numbers(Config), *numbers(EvaluateConfig)}


def numbers(kind, prefix="") -> list[str]:
    """The dotted keys whose values are one number, or null."""
    found, kinds = [], typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        parts = {kinds[item.name], *typing.get_args(kinds[item.name])}
        found += [prefix + item.name] if parts & {int, float} else []
        for part in parts:
            if dataclasses.is_dataclass(part):
                found += numbers(part, f"{prefix}{item.name}.")
    return found


def test_a_penalty_of_nothing_leaves_its_window_alone():
    assert load("reward.overlong_window=80", "reward.overlong_limit=0").reward.overlong_limit == 0
    given = ["reward.overlong_penalty=1", "reward.overlong_window=400"]
    assert load(*given).reward.overlong_limit == load(*given, "reward.overlong_limit=400").reward.overlong_limit == 400


@pytest.mark.parametrize(("rank", "printed"), [(None, 1), ("0", 1), ("1", 0)])
def test_an_error_of_all_ranks_is_printed_by_the_first_alone(rank, printed, monkeypatch, capsys):
    monkeypatch.setattr(errors, "FIRST_RANK_PRINTS_S", 0.0)
    if rank is None:
        monkeypatch.delenv("RANK", raising=False)
    else:
        monkeypatch.setenv("RANK", rank)
    error = DrKernelError("no such policy")
    error.on_every_rank = True
    with pytest.raises(SystemExit) as end, errors.one_line_errors(Config):
        raise error
    assert end.value.code == 2 and capsys.readouterr().err == "error: no such policy\n" * printed


def test_an_error_of_one_rank_is_printed_by_it(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit), errors.one_line_errors(Config):
        raise DrKernelError("this rank's disk is full")
    assert "disk is full" in capsys.readouterr().err
