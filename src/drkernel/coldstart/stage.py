"""`python train.py coldstart=seed_8m`: tasks -> graded solutions -> verdicts -> trajectories -> tokenizer -> policy.

The run folder gets trajectories.parquet with its verdicts (dataset.py), start/, a tokenizer and a policy with random
weights, and all that `stage=sft` leaves, which trains that policy: metrics.jsonl, checkpoints and policy/, which
`policy.path=` takes. With `sft.data` the set is one that is there. The same command goes on where it was stopped.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drkernel.coldstart.dataset import Options, make
from drkernel.config import Config
from drkernel.policy.model import new_policy
from drkernel.policy.prompts import PROMPTS, ChatPrompts, CompactPrompts
from drkernel.policy.tokenizer import for_chat, train_tokenizer
from drkernel.policy.transfer import export
from drkernel.training import sft, sft_data
from drkernel.training.progress import Progress, make_console
from drkernel.training.ranks import Ranks
from drkernel.training.sft_sources import sources
from drkernel.training.trainer import folder_line

TOKENIZED = 12_000
"""Trajectories on whose texts the tokenizer is trained, spread over the whole set."""


def train(config: Config, ranks: Ranks) -> None:
    """Make what is missing, then train as `stage=sft`. Collective."""
    ranks.broadcast_object(lambda: prepare(config))
    sft.train(prepared(config), ranks)


def prepared(config: Config) -> Config:
    """The config with the set, and the policy to begin with."""
    folder, positions = Path(config.run_dir), config.coldstart.positions
    data, longest = config.sft.data or str(folder / "trajectories.parquet"), config.sft.max_length or positions
    return dataclasses.replace(
        config,
        policy=dataclasses.replace(config.policy, path=str(folder / "start")),
        sft=dataclasses.replace(config.sft, data=data, max_length=min(longest, positions)),
    )


def prepare(config: Config) -> None:
    """The set and the untrained policy, where they are not there."""
    options, whole = config.coldstart, prepared(config)
    assert whole.sft.data
    start, console = Path(whole.policy.path), make_console()
    with Progress(console) as progress:
        progress.log(folder_line(config))
        if not config.sft.data and not (path := Path(whole.sft.data)).exists():
            numbers = f"{options.tasks:,} tasks with judged answers and {options.unjudged:,} with others"
            progress.log(f"{path}: making it of {numbers}")
            made = make(path, set_options(config), config, progress)
            for line in made.lines:
                progress.log(line)
        if not start.exists():
            said = texts(whole.sft.data, PROMPTS[config.policy.prompts])
            tokenizer = train_tokenizer(said, options.vocabulary, options.longest_token)
            tokenizer = for_chat(tokenizer) if config.policy.prompts == "chat" else tokenizer
            special_ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
            shape = {"positions": options.positions, "kv_heads": options.kv_heads, "seed": config.seed}
            policy = new_policy(len(tokenizer), options.hidden, options.layers, **shape, **special_ids)
            unfinished = start.with_name("start.tmp")
            export(policy, unfinished, tokenizer)
            os.replace(unfinished, start)
            size = sum(p.numel() for p in policy.parameters()) / 1e6
            progress.log(f"{start}: {size:.1f} million parameters, a vocabulary of {len(tokenizer)}")


def set_options(config: Config) -> Options:
    """What the config says of the set."""
    options, tasks = config.coldstart, config.tasks
    return Options(
        tasks=options.tasks,
        unjudged=options.unjudged,
        split="train",
        seed=config.seed,
        generator=tasks.generator,
        dtypes=tasks.dtypes,
        turns=config.trainer.turns,
        trajectories=options.trajectories,
        unjudged_trajectories=options.unjudged_trajectories,
        mistakes=options.mistakes,
        fused_share=options.fused_share,
        plain=options.plain,
    )


def texts(data: Any, prompts: type[CompactPrompts] | type[ChatPrompts]) -> Iterator[str]:
    """The messages on which the tokenizer is trained, as the policy will read and write them."""
    dialogues = [each for source in sources(data) for each in sft_data.read(source.place)]
    for dialogue in dialogues[:: max(1, -(-len(dialogues) // TOKENIZED))]:
        yield prompts.opening(dialogue.task)
        for number, text in enumerate(dialogue.messages[1:]):
            yield text if number % 2 else prompts.completion_text(text, dialogue.task)
