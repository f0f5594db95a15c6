"""A store's knowledge of its other disks over restarts: numbers, of which none is given again too early, and failures."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.store import StoreDirectory, disk_inspection
from holdfast.store.disk_inspection import KnownDisk, KnownDisks
from holdfast.system.file_id import MOST_DISKS


def disk(number: int) -> KnownDisk:
    return KnownDisk(number, f"id-{number}", f"/mnt/{number}")


def test_a_number_is_given_again_after_the_next_boot_once_all_have_been_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_inspection, "boot_id", lambda: b"one")
    known = KnownDisks()
    for number in range(1, MOST_DISKS + 1):
        assert known.new_number([1]) == number
        known = known.changed_to([disk(1), disk(number)])  # those before are let go
    assert known.new_number([1, MOST_DISKS]) is None
    known.write(tmp_path)
    known = KnownDisks.read(tmp_path)
    assert known.new_number([1, MOST_DISKS]) is None
    monkeypatch.setattr(disk_inspection, "boot_id", lambda: b"two")
    assert known.new_number([1, MOST_DISKS]) == 2
    assert known.new_number([1, 2]) == 3  # the disk with the last number is let go only now
    known = known.changed_to([disk(1), disk(2), disk(3)])
    assert known.let_go == [MOST_DISKS]
    assert known.new_number([1, 2, 3]) == 4


def test_disks_that_fail_together_are_all_noted(workspace: Path) -> None:
    store = StoreDirectory.open(workspace / "store")
    numbers = range(1, 9)
    try:
        for _ in range(20):
            KnownDisks([disk(number) for number in numbers]).write(store.path)
            threads = [threading.Thread(target=store.note_failed, args=[number]) for number in numbers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [known.number for known in KnownDisks.read(store.path).disks if known.has_failed] == list(numbers)
    finally:
        store.close()
