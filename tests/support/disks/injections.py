"""Faults injected at random into what a node keeps on its disk, and the comparison of all that it serves then.

The node has copies of objects with a digest in the store and of objects without one, in its stores' zones and in working
directories, and files of a process. A round injects faults into the files while the daemon is stopped, or while it runs and
nobody has the file open. What is read afterwards must be what was written, or an error where the only copy was spoilt.

Some rounds spoil the index as well. Then nothing is known of a process's own files any more, nor of
copies whose time of modification has changed: they may have been written to. Sizes are known from the first open on.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.daemons.node import Node

FILES = 60
_PAGE_BYTES = 4096
_LARGEST_BYTES = 40_000


class Injections:
    """Rounds of faults in ``node``, which is started; ``remote`` is the directory of its store of checkpoints."""

    def __init__(self, node: Node, remote: Path, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._node = node
        self._remote = remote
        self._chance = random.Random(seed)
        self._objects: dict[str, bytes] = {}
        self._versions: dict[str, set[bytes]] = {}
        self._own: dict[str, bytes] = {}
        self._old_index = node.directory / "old-index"
        self._foreign_index = node.directory / "foreign-index"
        (node.work / "worker_1").mkdir()
        (remote / "q").mkdir()
        for number in range(FILES):
            self._write_object(f"q/{number}")
        self._make_foreign_index()

    def round(self) -> None:
        """Inject faults into about half of the files; then read everything."""
        self._change_some()
        self._read_all()
        wanted = [path for path in self._local_files() if self._chance.random() < 0.5]
        kind = self._chance.choice(["running", "stopped", "without index"])
        if kind == "running":
            self._inject(wanted)
        else:
            self._node.stop()
            self._inject(wanted, hides=kind == "without index")
            if kind == "without index":
                self._spoil_index()
                self._own.clear()
            self._node.start()
        if kind != "stopped":
            self._open_all()
        self._read_all()

    # --- what is there -------------------------------------------------------------------------------------------------

    def _data(self) -> bytes:
        return self._chance.randbytes(self._chance.randint(1, _LARGEST_BYTES))

    def _write_object(self, name: str) -> None:
        """Write an object: through the mount, with a digest, or as another program does, without one."""
        data = self._data()
        if self._chance.random() < 0.5:
            (self._node.checkpoints / name).write_bytes(data)
        else:
            new = self._remote / "new"
            new.write_bytes(data)
            os.replace(new, self._remote / name)
        self._objects[name] = data
        self._versions.setdefault(name, set()).add(data)

    def _change_some(self) -> None:
        """Write some files anew, so that a stale index knows other versions, and keep an index now and then."""
        if self._chance.random() < 0.3:
            self._node.stop()
            shutil.rmtree(self._old_index, ignore_errors=True)
            shutil.copytree(self._node.store / "index", self._old_index)
            self._node.start()
        for name in self._chance.sample(sorted(self._objects), FILES // 10):
            self._write_object(name)
        for number in self._chance.sample(range(FILES), FILES // 5):
            data = self._data()
            path = self._node.work / f"worker_1/localState/own-{number}"
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            self._node.wait_digest(path)
            self._own[path.name] = data

    def _local_files(self) -> list[Path]:
        tree = self._node.store / "tree"
        return sorted(path for path in tree.rglob("*") if path.is_file() and path.name != ".lease")

    # --- faults ----------------------------------------------------------------------------------------------------------

    def _inject(self, files: list[Path], *, hides: bool = False) -> None:
        faults: list[Callable[[Path], None]] = [self._flip, self._truncate, self._extend, self._zero, self._swap]
        for path in files:
            fault = self._chance.choice(faults)
            stat = path.stat()
            if not stat.st_size:
                continue
            fault(path)
            if hides or self._chance.random() < 0.7:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            self.done[fault.__name__.strip("_")] += 1

    def _flip(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        _write_in_place(path, bytes(data))

    def _truncate(self, path: Path) -> None:
        os.truncate(path, self._chance.randrange(path.stat().st_size))

    def _extend(self, path: Path) -> None:
        with path.open("ab") as file:
            file.write(self._data())

    def _zero(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        start = self._chance.randrange(len(data)) // _PAGE_BYTES * _PAGE_BYTES
        data[start : start + _PAGE_BYTES] = bytes(len(data[start : start + _PAGE_BYTES]))
        _write_in_place(path, bytes(data))

    def _swap(self, path: Path) -> None:
        """Give the file the bytes of another one, as a file system that mixes up two does."""
        _write_in_place(path, self._chance.choice(self._local_files()).read_bytes())

    def _spoil_index(self) -> None:
        faults = [self._lose_index, self._damage_index, self._bring_back_index, self._take_foreign_index]
        fault = self._chance.choice(faults)
        fault()
        self.done[fault.__name__.strip("_")] += 1

    def _lose_index(self) -> None:
        shutil.rmtree(self._node.store / "index")

    def _damage_index(self) -> None:
        with (self._node.store / "index/data.mdb").open("r+b") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            for _ in range(self._chance.randint(1, 5)):
                file.seek(self._chance.randrange(size_bytes))
                file.write(self._chance.randbytes(self._chance.choice([1, 8, _PAGE_BYTES])))

    def _bring_back_index(self) -> None:
        self._put_index(self._old_index)

    def _take_foreign_index(self) -> None:
        self._put_index(self._foreign_index)

    def _put_index(self, index: Path) -> None:
        if index.exists():
            shutil.rmtree(self._node.store / "index")
            shutil.copytree(index, self._node.store / "index")

    def _make_foreign_index(self) -> None:
        other = Node(
            self._node.directory / "other", self._node.settings["checkpoints.url"], self._node.settings["blobs.url"]
        )
        other.start()
        for name in self._objects:
            (other.checkpoints / name).read_bytes()
        other.stop()
        shutil.copytree(other.store / "index", self._foreign_index)

    # --- the comparison --------------------------------------------------------------------------------------------------

    def _open_all(self) -> None:
        places = [self._node.checkpoints, self._node.work / "worker_1/localState"]
        for path in [place / name for place in places for name in (*self._objects, *self._own)]:
            with suppress(OSError):
                path.open("rb").close()

    def _read_all(self) -> None:
        for name, data in self._objects.items():
            self._compare(self._node.checkpoints / name, {data})
            self._compare(self._node.work / "worker_1/localState" / name, self._versions[name])  # what was fetched stays
        for name, data in list(self._own.items()):
            self._compare(self._node.work / "worker_1/localState" / name, {data})

    def _compare(self, path: Path, wanted: set[bytes]) -> None:
        try:
            size_bytes, found = path.stat().st_size, path.read_bytes()
        except OSError as problem:
            if self._own.pop(path.name, None) is None:  # of the process's own files there is no other copy
                self.problems.append(f"{path}: {problem}")
            return
        if found not in wanted:
            self.problems.append(f"{path}: {len(found)} bytes that nobody has written there")
        elif size_bytes not in {len(data) for data in wanted}:
            self.problems.append(f"{path}: stat says {size_bytes} bytes, which it never had")


def _write_in_place(path: Path, data: bytes) -> None:
    """Write over the bytes of a file; it stays the same file."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
