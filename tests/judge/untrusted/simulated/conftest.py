from tests.judge.interpreted import pytest_ignore_collect

__all__ = ["pytest_ignore_collect"]
