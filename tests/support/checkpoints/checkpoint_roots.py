"""Checkpoints as another node has left them: written past the mount into the directory that is the store, and aged."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast.store import LONGEST_TICK_NS

DAY_SECONDS = 86400.0
JOB = "a" * 32


def digest(number: int) -> str:
    return f"{number:032x}"


def put(file: Path, data: bytes = b"x", *, age_days: float = 0.0) -> Path:
    """Write a file of the store, as if so long ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    age(file, age_days)
    return file


def age(path: Path, days: float) -> None:
    """Set the time of the last write; not after the store's clock, which goes by the kernel's ticks."""
    moment_ns = time.time_ns() - LONGEST_TICK_NS - int(days * DAY_SECONDS * 10**9)
    os.utime(path, ns=(moment_ns, moment_ns))


def job(directory: Path, checkpoints: tuple[int, ...] = (7, 8), orphans: int = 1) -> set[str]:
    """Write a job with complete checkpoints, orphans, a late file and an emptied directory; return the garbage's names."""
    for number in checkpoints:
        names = [f"shared/{digest(number)}", f"exclusive/chk-{number}-state"]
        for name in names:
            put(directory / name, age_days=3)
        metadata = OwnMetadata(number, tuple(OwnFile(name, 1, "") for name in names))
        put(directory / f"chk-{number}/_metadata", own_metadata(metadata), age_days=2 - number / 1000)
    garbage = {f"shared/{digest(1000 + number)}" for number in range(orphans)} | {"exclusive/chk-3-late"}
    for name in garbage:
        put(directory / name, b"12345", age_days=3)
    (directory / "chk-3").mkdir()
    age(directory / "chk-3", 3)
    put(directory / "taskowned/other", age_days=9)
    put(directory / "notes.txt", age_days=9)
    return garbage | {"chk-3"}


def below(directory: Path) -> set[str]:
    """Return the names of all files and empty directories below ``directory``. What goes meanwhile may be among them."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file() or _is_empty(path)}


def _is_empty(directory: Path) -> bool:
    try:
        return not any(directory.iterdir())
    except FileNotFoundError:
        return True
