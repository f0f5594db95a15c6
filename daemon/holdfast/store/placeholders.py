"""The placeholders of a tree whose directories are on several disks: where each is, and which directory it stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.store.other_disk import Placeholder, is_workdir
from holdfast.system.file_id import FileId, id_on


class Placeholders:
    """All placeholders of a tree. ``deepest`` is the number of levels down to the deepest one."""

    def __init__(self, placed: Iterable[Placeholder]) -> None:
        self._by_id: dict[FileId, Placeholder] = {}
        self._by_path: dict[bytes, Placeholder] = {}
        self._by_name: dict[bytes, Placeholder] = {}
        self._ids: dict[FileId, FileId] = {}
        """The ids of placeholders, by those that the directories would have on their disks."""
        self._ids_there: dict[FileId, FileId] = {}
        """The same the other way round."""
        self._above: Counter[bytes] = Counter()
        """The number of placeholders below each directory that has any."""
        self.deepest = 2  # a working directory in its base
        self.with_id = self._by_id.get
        self.at = self._by_path.get
        self.named = self._by_name.get
        for each in placed:
            self.add(each)

    def add(self, placeholder: Placeholder) -> None:
        """Add one."""
        if placeholder.inode_there:
            id_there = id_on(placeholder.disk.number, placeholder.inode_there)
            self._ids[id_there], self._ids_there[placeholder.id] = placeholder.id, id_there
        self._above.update(_directories_above(placeholder.path))
        self._by_id[placeholder.id] = self._by_path[placeholder.path] = self._by_name[placeholder.name] = placeholder
        self.deepest = max(self.deepest, placeholder.path.count(b"/") + 1)

    def drop(self, placeholder: Placeholder) -> None:
        """Forget one."""
        self._ids.pop(self._ids_there.pop(placeholder.id, FileId(-1)), None)
        self._by_id.pop(placeholder.id, None)
        if self._by_path.pop(placeholder.path, None) is not None:
            for directory in _directories_above(placeholder.path):
                self._above[directory] -= 1
                if not self._above[directory]:
                    del self._above[directory]
        self._by_name.pop(placeholder.name, None)

    def id_of(self, file: FileId) -> FileId:
        """Return the id of a file on another disk: the placeholder's, if it is a directory that one stands for."""
        return self._ids.get(file, file)

    def above(self, path: bytes) -> Placeholder | None:
        """Return the placeholder at or above a path."""
        end = -1
        for _ in range(self.deepest):
            end = path.find(b"/", end + 1)
            found = self._by_path.get(path if end < 0 else path[:end])
            if found is not None or end < 0:
                return found
        return None

    def __len__(self) -> int:
        return len(self._by_path)

    def is_any_below(self, path: bytes) -> bool:
        """Say whether there is one at or below a path."""
        return path in self._by_path or path in self._above

    def on(self, disk: int, *, workdirs: bool) -> list[bytes]:
        """Return the paths of the working directories, or of all other directories, on the disk with this number."""
        found = (each for each in list(self._by_path.values()) if each.disk.number == disk)
        return [each.path for each in found if is_workdir(each.path) == workdirs]


def _directories_above(path: bytes) -> Iterator[bytes]:
    """Yield the paths of all directories above the one at ``path``, but not that of the tree itself."""
    end = path.find(b"/")
    while end >= 0:
        yield path[:end]
        end = path.find(b"/", end + 1)
