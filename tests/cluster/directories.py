"""The directory of a cluster: held by a lock while its cluster lives, and removed by the next one when it does not."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "holdfast-cluster-"
_LOCK = "lock"


@contextmanager
def held_directory(base: Path) -> Iterator[Path]:
    """Remove what dead clusters have left in ``base``; make a directory there, and hold and remove it."""
    for dead in _directories(base, alive=False):
        shutil.rmtree(dead)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    directory.chmod(0o755)
    try:
        with (directory / "new-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (directory / "new-lock").rename(directory / _LOCK)  # nobody sees it unlocked while we live
            yield directory
    finally:
        shutil.rmtree(directory)


def living(base: Path) -> list[Path]:
    """Return the directories of the clusters that live."""
    return _directories(base, alive=True)


def _directories(base: Path, *, alive: bool) -> list[Path]:
    locks = sorted(base.glob(f"{_PREFIX}*/{_LOCK}"))
    return [lock.parent for lock in locks if _is_held(lock) == alive]


def _is_held(path: Path) -> bool:
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
