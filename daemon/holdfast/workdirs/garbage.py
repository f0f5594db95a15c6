"""Garbage in working directories, left behind by processes: names and times in, a plan out. No I/O.

- ``spark-<uuid>/``, ``blockmgr-<uuid>/`` (S ``Utils.createTempDir``, ``DiskBlockManager``), outside of ``localState/``
  and ``blobStorage/``: left by a process that has ended. The names do not tell which. But anything written before the
  present holder acquired the working directory is an earlier holder's, and the earlier ones have ended.
- ``localState/aid_<id>/jid_<id>/vtx_<id>_sti_<n>/chk_<m>/`` (F ``LocalSnapshotDirectoryProviderImpl``): Flink prunes only
  what its own process has made; directories of an earlier one stay as long as their allocation. One is garbage once a later
  checkpoint of the same subtask is itself older than the grace age, because no checkpoint takes that long.
- ``blobStorage/incoming/temp-<n>`` (F ``BlobUtils``): transfers cut off by a crash.
- ``blobStorage/<job>/blob_<p|t>-<sha1>-<random>``: copies that the blob store also has, and that were used neither by the
  present holder nor within the grace age.

Everything else is kept, as is everything that is open or was touched within the grace age.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.checkpoints.reachability import Phase, Plan, PlanEntry, Policy, Reason

_UUID = rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_PROCESS = re.compile(rb"((?!localState/|blobStorage/)(?:[^/]+/)*?(?:spark|blockmgr)-%s)(?:/.*)?" % _UUID, re.DOTALL)
_LOCAL_STATE = re.compile(
    rb"((localState/aid_[^/]+/jid_[^/]+/vtx_[^/]+_sti_[0-9]+)/chk_(0|[1-9][0-9]{0,18}))(?:/.*)?", re.DOTALL
)
_INCOMING = re.compile(rb"blobStorage/incoming/temp-[0-9]+")
_BLOB = re.compile(rb"blobStorage/(?:no_job|job_[0-9a-f]+|application_[0-9a-f]+)/blob_[pt]-[0-9a-f]{40}-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Content:
    """A file or directory of a working directory, by its name there. ``used_ns`` is its last open, as far as known.

    ``is_copy``: the store has the same bytes under this name, and they were not changed here.
    """

    name: bytes
    size_bytes: int
    mtime_ns: int
    used_ns: int = 0
    is_directory: bool = False
    is_open: bool = False
    is_copy: bool = False

    @property
    def touched_ns(self) -> int:
        """The time of the last write or open."""
        return max(self.mtime_ns, self.used_ns)


@dataclass(slots=True)
class _Tree:
    """A directory with its content, which is removed as a whole or not at all."""

    size_bytes: int = 0
    mtime_ns: int = 0
    touched_ns: int = 0
    is_open: bool = False

    def add(self, content: Content) -> None:
        self.size_bytes += 0 if content.is_directory else content.size_bytes
        self.mtime_ns = max(self.mtime_ns, content.mtime_ns)
        self.touched_ns = max(self.touched_ns, content.touched_ns)
        self.is_open = self.is_open or content.is_open


def is_judged(name: bytes) -> bool:
    """Say whether a name in a working directory may be garbage at all."""
    return any(pattern.fullmatch(name) for pattern in (_PROCESS, _LOCAL_STATE, _INCOMING, _BLOB))


def garbage(contents: Iterable[Content], held_since_ns: int | None, policy: Policy, now_ns: int) -> Plan:
    """Plan the removals in one working directory. ``held_since_ns``: when its holder acquired it; None without a holder."""
    return Plan(tuple(_Workdir(held_since_ns, policy.grace_ns, now_ns).judged(contents)))


class _Workdir:
    def __init__(self, held_since_ns: int | None, grace_ns: int, now_ns: int) -> None:
        self._held_since_ns = held_since_ns
        self._grace_ns = grace_ns
        self._now_ns = now_ns

    def judged(self, contents: Iterable[Content]) -> Iterator[PlanEntry]:
        processes: defaultdict[bytes, _Tree] = defaultdict(_Tree)
        local_states: defaultdict[bytes, dict[int, _Tree]] = defaultdict(dict)
        for content in contents:
            if match := _PROCESS.fullmatch(content.name):
                processes[match[1]].add(content)
            elif match := _LOCAL_STATE.fullmatch(content.name):
                local_states[match[2]].setdefault(int(match[3]), _Tree()).add(content)
            elif not content.is_directory and not content.is_open and self._is_old(content.touched_ns):
                yield from self._judged_file(content)
        for name, tree in processes.items():
            if not tree.is_open and self._is_old(tree.touched_ns) and self._is_an_earlier_holders(tree.touched_ns):
                yield self._entry(name, tree.size_bytes, tree.mtime_ns, Reason.DEAD_PROCESS)
        for subtask, checkpoints in local_states.items():
            yield from self._judged_checkpoints(subtask, checkpoints)

    def _judged_file(self, content: Content) -> Iterator[PlanEntry]:
        if _INCOMING.fullmatch(content.name):
            yield self._entry(content.name, content.size_bytes, content.mtime_ns, Reason.ABORTED_TRANSFER)
        elif _BLOB.fullmatch(content.name) and content.is_copy and self._had_its_time(content.touched_ns):
            yield self._entry(content.name, content.size_bytes, content.mtime_ns, Reason.UNUSED_BLOB)

    def _judged_checkpoints(self, subtask: bytes, checkpoints: dict[int, _Tree]) -> Iterator[PlanEntry]:
        newest_finished = max((n for n, tree in checkpoints.items() if self._is_old(tree.touched_ns)), default=-1)
        for number, tree in sorted(checkpoints.items()):
            if number < newest_finished and not tree.is_open and self._is_old(tree.touched_ns):
                name = b"%s/chk_%d" % (subtask, number)
                yield self._entry(name, tree.size_bytes, tree.mtime_ns, Reason.OLD_LOCAL_STATE, f"checkpoint {number}")

    def _is_old(self, time_ns: int) -> bool:
        return self._now_ns - time_ns >= self._grace_ns

    def _is_an_earlier_holders(self, touched_ns: int) -> bool:
        return self._held_since_ns is None or touched_ns < self._held_since_ns

    def _had_its_time(self, touched_ns: int) -> bool:
        """Say whether the present holder, if any, has been here for the grace age without touching it."""
        is_settled = self._held_since_ns is None or self._is_old(self._held_since_ns)
        return is_settled and self._is_an_earlier_holders(touched_ns)

    def _entry(self, name: bytes, size_bytes: int, mtime_ns: int, reason: Reason, about: str = "") -> PlanEntry:
        return PlanEntry(name, reason, about, size_bytes, mtime_ns, self._now_ns - mtime_ns, Phase.FILE)
