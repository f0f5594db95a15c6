"""Temporary files that writers have left on this node. No store has them, so no listing of a store shows them.

A writer makes the name of such a file up anew at each attempt, and renames the file once it is complete. If it is killed
before that, nobody comes back for the file. Which names are of this kind, the checkpoint formats say. A file that anybody
may still want is told by its times: whoever writes, links or renames it sets its ctime, which nobody can set back.
"""

from __future__ import annotations

import stat as stat_module
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.store import Tree
from holdfast.system.file_id import FileStat
from holdfast.zones import NameTable, sidecar_owner


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Finds such files in the zones of stores, by their paths in the tree."""

    _tree: Tree
    _names: NameTable
    _formats: Formats = FORMATS

    def below(self, path: bytes, before_ns: int) -> Iterator[tuple[bytes, FileStat]]:
        """Yield those below the directory at ``path`` that were not touched after ``before_ns``.

        It waits for the disk: call it in a thread.
        """
        for child, stat in self._tree.walk(path, is_wanted=self.has_name):
            if _is_file_from_before(stat, before_ns):
                yield child, stat

    def at(self, path: bytes, before_ns: int) -> FileStat | None:
        """Return the attributes of the one at ``path`` if it is there and was not touched after ``before_ns``."""
        try:
            stat = self._tree.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return stat if self.has_name(path) and _is_file_from_before(stat, before_ns) else None

    def has_name(self, path: bytes) -> bool:
        """Say whether a file at ``path`` is one of them by its name: it, or the file whose checksum it is."""
        name = path.rpartition(b"/")[2]
        if not self._formats.is_of_one_attempt(sidecar_owner(name) or name):
            return False
        return self._names.kind_of(path.partition(b"/")[2]).policy.stays_here


def _is_file_from_before(stat: FileStat, before_ns: int) -> bool:
    return stat_module.S_ISREG(stat.st_mode) and max(stat.st_mtime_ns, stat.st_ctime_ns) <= before_ns
