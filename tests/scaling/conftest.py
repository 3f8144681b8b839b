"""Shared by the tests of studies and their reports."""

import pytest

from drkernel.scaling import report


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what takes a report a second, where its tables are looked at."""
    monkeypatch.setattr(report.plots, "draw", lambda runs, records, folder: None)
