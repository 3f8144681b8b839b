"""For folders with tests of the interpreter, which stays in a process: with `-m gpu`, where kernels are compiled and
processes started, it is not loaded, and these folders are left out."""

from pathlib import Path

import pytest

from drkernel.judge.untrusted.simulated.device import install


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.option.markexpr == "gpu":
        return True
    install(fake_cuda=False)
    return None
