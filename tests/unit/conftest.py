"""What several parts of the daemon need to be tested without a mount."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.index import Index
from holdfast.telemetry import EventLog


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index."""
    opened = Index.open(tmp_path / "index", "store")
    yield opened
    opened.close()


@pytest.fixture
def events() -> EventLog:
    """A log in which all happens at the same moment."""
    return EventLog(lambda: 0.0)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Nothing that refers to itself is freed in the test: what is gone at its end was in no cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
