"""The contents of the cache, added up by directory: four levels below whichever directory is asked for.

Each answer comes from the index alone, by one pass in a thread. A pass over a million entries takes some seconds of a
thread's time, so there are pauses between the passes, and an answer is given again for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from holdfast.control.messages import CacheUsage, UsagePart
from holdfast.control.paths import Paths
from holdfast.index import Entries, EntryState
from holdfast.system.text import shown

_STATES = frozenset(EntryState) - {EntryState.LOCAL}
_MOST_COUNTED = 100_000  # directories and files by name; what comes after these is only added up
_MOST_SHOWN = (120, 60, 40, 40)  # of each directory, by level
_LEAST_SHARE = 1 / 2000  # of the whole, below the first level: what is smaller can't be seen in a picture
_SHORTEST_SECONDS = 2.0
_PAUSE_FACTOR = 10.0  # passes take a tenth of the time at most
_MOST_KEPT = 16


@dataclass(slots=True)
class _Sum:
    files: int = 0
    size_bytes: int = 0
    unsent_bytes: int = 0
    is_directory: bool = False
    parts: dict[bytes, _Sum] = field(default_factory=dict)

    def add(self, size_bytes: int, unsent_bytes: int) -> None:
        self.files += 1
        self.size_bytes += size_bytes
        self.unsent_bytes += unsent_bytes


class CacheSurvey:
    """Adds up the contents of the cache, from the index. ``clock`` returns seconds."""

    def __init__(self, entries: Entries, paths: Paths, clock: Callable[[], float]) -> None:
        self._entries = entries
        self._paths = paths
        self._clock = clock
        self._lock = trio.Lock()
        self._answers: dict[bytes, tuple[float, CacheUsage]] = {}
        self._next_pass = 0.0

    async def below(self, path: str) -> CacheUsage:
        """Return what is cached at or below ``path``. Raises as ``Paths.relative`` does."""
        wanted = self._paths.relative(path)
        async with self._lock:
            until, answer = self._answers.get(wanted, (0.0, None))
            if answer is not None and self._clock() < until:
                return answer
            await trio.sleep(max(0.0, self._next_pass - self._clock()))
            began = self._clock()
            total = await trio.to_thread.run_sync(self._count, wanted)
            seconds = self._clock() - began
            answer = CacheUsage(
                path=self._paths.absolute(wanted),
                files=total.files,
                size_bytes=total.size_bytes,
                unsent_bytes=total.unsent_bytes,
                parts=_shown(total, _MOST_SHOWN, 0),
            )
            self._next_pass = self._clock() + min(_PAUSE_FACTOR * seconds, 10 * _SHORTEST_SECONDS)
            self._keep(wanted, answer, self._clock() + max(_SHORTEST_SECONDS, _PAUSE_FACTOR * seconds))
            return answer

    def _keep(self, wanted: bytes, answer: CacheUsage, until: float) -> None:
        self._answers.pop(wanted, None)
        self._answers[wanted] = (until, answer)
        if len(self._answers) > _MOST_KEPT:
            del self._answers[next(iter(self._answers))]

    def _count(self, wanted: bytes) -> _Sum:
        total, counted = _Sum(is_directory=True), 0
        start = wanted + b"/" if wanted else b""
        for _, entry in self._entries.scan(_STATES):
            path = entry.names[0].path if entry.names else entry.path
            if path != wanted and not path.startswith(start):
                continue
            unsent = entry.size_bytes if entry.is_unsent else 0
            total.add(entry.size_bytes, unsent)
            into, names = total, path[len(start) :].split(b"/", len(_MOST_SHOWN))
            for at, name in enumerate(names[: len(_MOST_SHOWN)]):
                part = into.parts.get(name)
                if part is None:
                    if counted >= _MOST_COUNTED:
                        break
                    counted += 1
                    part = into.parts[name] = _Sum(is_directory=at + 1 < len(names))
                part.add(entry.size_bytes, unsent)
                into = part
        return total


def _shown(total: _Sum, most: tuple[int, ...], least_bytes: int) -> list[UsagePart]:
    """Return the largest parts of ``least_bytes`` at least, and one without a name for all others."""
    if not most:
        return []
    largest = sorted(total.parts.items(), key=lambda item: (-item[1].size_bytes, item[0]))[: most[0]]
    least_below = least_bytes or max(1, int(total.size_bytes * _LEAST_SHARE))
    found = [
        UsagePart(
            name=shown(name),
            files=part.files,
            size_bytes=part.size_bytes,
            unsent_bytes=part.unsent_bytes,
            is_directory=part.is_directory,
            parts=_shown(part, most[1:], least_below),
        )
        for name, part in largest
        if part.size_bytes >= least_bytes
    ]
    files = total.files - sum(part.files for part in found)
    if found and files:
        size_bytes = total.size_bytes - sum(part.size_bytes for part in found)
        unsent_bytes = total.unsent_bytes - sum(part.unsent_bytes for part in found)
        found.append(UsagePart(name="", files=files, size_bytes=size_bytes, unsent_bytes=unsent_bytes))
    return found
