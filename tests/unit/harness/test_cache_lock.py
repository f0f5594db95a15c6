"""The lock of what the tests keep outside of the checkout."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.tools.cache import locked


def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(Path, "open", refuse)


def test_a_cache_on_a_read_only_disk_is_used_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errno.EROFS)
    entered = []
    with locked(tmp_path / "lock"):
        entered.append(True)
    assert entered == [True]


def test_a_lock_that_can_not_be_made_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errno.EACCES)
    with pytest.raises(PermissionError), locked(tmp_path / "lock"):
        pass
