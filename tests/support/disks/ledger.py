"""What was acknowledged, and what may be there besides: the book that is compared with a file system after a power cut."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ABSENT = 0
_LARGEST_BYTES = 100_000


def content(name: str, version: int) -> bytes:
    """Return the bytes of a version of a file, of 1 to 100,000 bytes."""
    chance = random.Random(f"{name} {version}")
    return chance.randbytes(chance.randint(1, _LARGEST_BYTES))


@dataclass
class _Fact:
    sure: int = ABSENT
    """The last version that was acknowledged."""
    begun: list[int] = field(default_factory=list)
    """Versions since, which are there or not."""
    may_be_torn: bool = False
    """Whether what was begun is written under the name itself."""
    before: list[int] = field(default_factory=list)
    """Versions acknowledged earlier that a store may still have, if it gets new ones late."""


class Ledger:
    """Facts by path in the mount. Threads write it; ``copy`` is what was known at a moment."""

    def __init__(self) -> None:
        self._facts: dict[str, _Fact] = {}
        self._lock = threading.Lock()
        self._last = 0

    @contextmanager
    def change(
        self, name: str, *, deletes: bool = False, may_be_torn: bool = False, is_sent_late: bool = False
    ) -> Iterator[bytes]:
        """Begin a new version, whose bytes the body writes; it is sure once the body has ended.

        Where files are sent late (``is_sent_late``), the store may have an older version of a file that is being deleted.
        """
        with self._lock:
            self._last += 1
            version = ABSENT if deletes else self._last
            fact = self._facts.setdefault(name, _Fact())
            fact.begun.append(version)
            fact.may_be_torn |= may_be_torn
        yield b"" if deletes else content(name, version)
        with self._lock:
            before = [*fact.before, fact.sure] if is_sent_late and not deletes else []
            self._facts[name] = _Fact(sure=version, before=before)

    def copy(self) -> Ledger:
        """Return what is known now."""
        with self._lock:
            taken = Ledger()
            taken._facts = copy.deepcopy(self._facts)
        return taken

    def is_settled(self, name: str) -> bool:
        """Say whether no change of the name is under way."""
        return name not in self._facts or not self._facts[name].begun

    def __len__(self) -> int:
        return len(self._facts)

    def problems(self, mountpoint: Path) -> list[str]:
        """Compare with what is there now; return what is lost or wrong."""
        return [problem for name, fact in sorted(self._facts.items()) if (problem := _compare(mountpoint, name, fact))]


def _compare(mountpoint: Path, name: str, fact: _Fact) -> str:
    try:
        found = (mountpoint / name).read_bytes()
    except FileNotFoundError:
        return "" if ABSENT in (fact.sure, *fact.begun) else f"{name} is lost"
    except OSError as problem:
        return f"{name}: {problem}"
    wanted = {fact.sure, *fact.begun, *(fact.before if ABSENT in fact.begun else ())} - {ABSENT}
    if any(content(name, version) == found for version in wanted):
        return ""
    if fact.begun and fact.may_be_torn:
        return ""
    if not wanted:
        return f"{name} was deleted and is there again"
    what = "zeros" if not any(found) else "other bytes"
    return f"{name} has {len(found)} bytes, {what}, not what {fact} says"
