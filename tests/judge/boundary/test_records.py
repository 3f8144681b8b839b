"""Configurations of a task's own classes: a submission gets objects with the same attributes, and may send none."""

from __future__ import annotations

import argparse
import dataclasses
import json
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from drkernel.judge.boundary.records import recorded
from drkernel.judge.boundary.shared_tensors import NotSerializable, decode, encode


@dataclasses.dataclass
class Config:
    width: int = 64
    heads: tuple[int, ...] = (4, 2)
    layers = 3

    @property
    def half(self) -> int:
        return self.width // 2

    def halved(self) -> int:
        return self.half


class Sizes(NamedTuple):
    rows: int
    inner: Config


def handed(value):
    tensors = []
    form = encode(recorded(value), lambda tensor: tensors.append(tensor) or len(tensors) - 1)
    return decode(json.loads(json.dumps(form)), tensors.__getitem__, with_objects=True)


@pytest.mark.parametrize("kind", [SimpleNamespace, argparse.Namespace, dict])
def test_a_configuration_has_its_attributes(kind):
    found = handed([kind(config=Config(32), x=torch.ones(2))])[0]
    config = found["config"] if kind is dict else found.config
    assert (config.width, config.heads, config.layers, config.half) == (32, (4, 2), 3, 16)


def test_a_named_tuple_is_one_and_has_names():
    found = handed(Sizes(8, Config()))
    rows, inner = found
    assert isinstance(found, tuple) and rows == found.rows == 8 and inner.width == found.inner.width == 64


@pytest.mark.parametrize("value", [Config(), Sizes(1, Config())])
def test_what_comes_from_a_submission_has_no_objects(value):
    with pytest.raises(NotSerializable):
        decode(encode(recorded(value), len), [].__getitem__)
    if isinstance(value, Config):
        with pytest.raises(NotSerializable, match="Config"):
            encode(value, len)


def test_what_goes_round_in_a_circle_is_refused():
    own = SimpleNamespace()
    own.own = own
    with pytest.raises(NotSerializable):
        handed(own)
