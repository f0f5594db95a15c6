"""Working directories are served, and tried again, when the disk takes no notes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import IndexUnwritableError
from holdfast.index import WorkdirRecord
from holdfast.workdirs import Workdirs, service
from holdfast.workdirs.ownership import LEASE_FILE


@pytest.mark.parametrize("problem", [OSError("Input/output error"), IndexUnwritableError("full")])
def test_the_end_of_a_hold_that_can_not_be_noted_is_noted_later(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    """The last close of a lease file comes in the background, where an error would end the daemon."""

    def refuse(path: bytes, record: WorkdirRecord) -> None:
        raise problem

    woken: list[bool] = []
    record = WorkdirRecord("driver", "x", 1.0, 2.0)
    workdirs: Any = SimpleNamespace(
        _records=SimpleNamespace(get=lambda _: record),
        _holding=SimpleNamespace(holder=lambda *_: None, released=refuse),
        _wake=lambda: woken.append(True),
    )
    node: Any = SimpleNamespace(name=LEASE_FILE, parent=object())
    monkeypatch.setattr(service, "path_of", lambda _: b"work/driver_x")
    Workdirs.file_closed(workdirs, node)
    assert woken == [True]
