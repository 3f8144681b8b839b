"""Which attention kernels are taken where packages are half installed."""

import sys
import types

import pytest
import torch

from drkernel.policy import varlen


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(varlen, "_FLASH4", True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    varlen._imports.cache_clear()
    yield torch.device("cuda")
    varlen._imports.cache_clear()


def test_flash_attention_without_its_cutlass_package_is_passed_over_with_one_line(h200, monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", None)  # an import that fails
    with pytest.warns(UserWarning, match=r"flash_attn\.cute\.interface is installed but cannot be imported .* slower"):
        assert not varlen.flash4_works(h200)
    assert not varlen.flash4_works(h200), "and is not tried again"


def test_flash_attention_that_can_be_imported_is_taken(h200, monkeypatch):
    for name in ("flash_attn", "flash_attn.cute", "flash_attn.cute.interface"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert varlen.flash4_works(h200) and not varlen.flash4_works(torch.device("cpu"))
