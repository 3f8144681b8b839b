"""Tests of the interpreter, which stays in the process: with `-m gpu`, where kernels are compiled, it is not loaded."""

from pathlib import Path

import pytest

from drkernel.judge.untrusted.simulated.device import install


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.option.markexpr == "gpu":
        return True
    install(fake_cuda=False)
    return None
