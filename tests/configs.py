"""Configurations as train.py and evaluate.py would have them, for tests of what comes after the command line.

To compose one takes Hydra a tenth of a second. Here each list of overrides is composed once in a process.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from drkernel.config import REPOSITORY, Config, EvaluateConfig, load_run, load_study


def composed(program: str, *overrides: str, hydra: bool = False) -> DictConfig:
    """What Hydra composes for `python PROGRAM.py OVERRIDES`. hydra: with the settings of Hydra itself."""
    return copy.deepcopy(_composed(program, overrides, hydra))


def train_config(*overrides: str, run_dir: Path | str = "nowhere") -> Config:
    """The configuration of `python train.py OVERRIDES`. Raises DrKernelError as the command would."""
    return dataclasses.replace(copy.deepcopy(_train_config(overrides, os.getcwd())), run_dir=str(run_dir))


def evaluate_config(*overrides: str, run_dir: Path | str = "nowhere") -> EvaluateConfig:
    """The configuration of `python evaluate.py OVERRIDES`. Raises DrKernelError as the command would."""
    return dataclasses.replace(copy.deepcopy(_evaluate_config(overrides, os.getcwd())), run_dir=str(run_dir))


def variants(group: str) -> list[Path]:
    """The files of a config group."""
    return sorted((REPOSITORY / "conf" / group).glob("*.yaml"))


def every_variant(groups: Sequence[str], added: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Lists of overrides that have every variant of every group: the first ones together, the second ones, and so on.

    added: groups that a configuration has only where `+group=variant` adds them.
    """
    columns = [[f"{'+' * (group in added)}{group}={path.stem}" for path in variants(group)] for group in groups]
    return [tuple(filter(None, row)) for row in itertools.zip_longest(*columns)]


@functools.cache
def _composed(program: str, overrides: tuple[str, ...], hydra: bool) -> DictConfig:
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return compose(program, ["run_dir=nowhere", *overrides], return_hydra_config=hydra)


@functools.cache
def _train_config(overrides: tuple[str, ...], cwd: str) -> Config:  # what paths mean depends on the working directory
    return load_run(_composed("train", overrides, hydra=False))


@functools.cache
def _evaluate_config(overrides: tuple[str, ...], cwd: str) -> EvaluateConfig:
    return load_study(_composed("evaluate", overrides, hydra=False))
