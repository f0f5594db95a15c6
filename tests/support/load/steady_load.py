"""A process that works in a directory until it is told to stop, and checks everything that it sees.

``python -m tests.support.load.steady_load KIND DIRECTORY SEED``: says ``ready``, works until its input ends, then says how
many rounds it did, the median of those that took longer than a daemon that lives needs, and the longest. The first thing
that is not as it should be ends it with a traceback. Kinds: ``names`` (create, link, rename, exchange, unlink, list),
``bytes`` (write, read, map what is open), ``data`` (the same, and attributes, locks and other handles), ``objects`` (a
sending zone: write, publish by rename, replace, read, remove), ``rocksdb`` (a database with checkpoints).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import select
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from tests.support.load import rocksdb_job

_FILE_BYTES = 64 * 1024
_WAIT_SECONDS = 0.15


class Load:
    """One process's work; every round leaves the directory as a model says."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.model: dict[str, bytes] = {}

    def round(self) -> None:
        """Do something, and check it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Check everything."""
        for name, data in self.model.items():
            assert (self.directory / name).read_bytes() == data, name

    def name(self) -> str:
        return f"f{self.random.randrange(20)}"

    def some(self) -> str | None:
        return self.random.choice(sorted(self.model)) if self.model else None


class Names(Load):
    """Metadata: each name is where it should be, with the content it should have."""

    def round(self) -> None:
        steps = [self.create, self.create, self.rename, self.link, self.exchange, self.unlink, self.nested, self.list]
        self.random.choice(steps)()

    def create(self) -> None:
        name, data = self.name(), self.random.randbytes(20)
        path = self.directory / name
        if name in self.model:
            self.unlink(name)
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        with open(fd, "wb", buffering=0) as file:
            file.write(data)
        self.model[name] = data

    def rename(self) -> None:
        old, new = self.some(), self.name()
        if old is None or old == new:
            return
        os.rename(self.directory / old, self.directory / new)
        if not (self.directory / old).exists():  # two names of one file: rename(2) does nothing
            self.model[new] = self.model.pop(old)

    def link(self) -> None:
        old, new = self.some(), self.name()
        if old is not None and new not in self.model:
            os.link(self.directory / old, self.directory / new)
            self.model[new] = self.model[old]

    def exchange(self) -> None:
        first, second = self.some(), self.some()
        if first is None or second is None:
            return
        fd = os.open(self.directory, os.O_RDONLY)
        try:
            rename_with_flags(fd, first.encode(), fd, second.encode(), RENAME_EXCHANGE)
        finally:
            os.close(fd)
        self.model[first], self.model[second] = self.model[second], self.model[first]

    def unlink(self, name: str | None = None) -> None:
        name = name or self.some()
        if name is not None:
            os.unlink(self.directory / name)
            del self.model[name]

    def nested(self) -> None:
        """Directories, symbolic links, attributes."""
        path = self.directory / "d"
        path.mkdir()
        (path / "s").symlink_to("nowhere")
        os.setxattr(path, "user.a", b"1", os.XATTR_CREATE)
        os.chmod(path, 0o700)
        moved = path.rename(self.directory / "e")
        assert os.getxattr(moved, "user.a") == b"1"
        assert os.readlink(moved / "s") == "nowhere"
        os.removexattr(moved, "user.a")
        os.unlink(moved / "s")
        moved.rmdir()

    def list(self) -> None:
        assert sorted(os.listdir(self.directory)) == sorted(self.model)
        name = self.some()
        if name is not None:
            assert (self.directory / name).read_bytes() == self.model[name], name


class Bytes(Load):
    """Files that stay open for long, one of them without a name, one locked: nothing but their bytes."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        (directory / "open").write_bytes(bytes(_FILE_BYTES))
        self.file = (directory / "open").open("r+b", buffering=0)
        self.nameless = (directory / "nameless").open("w+b", buffering=0)
        os.unlink(directory / "nameless")
        self.contents = {self.file: bytearray(_FILE_BYTES), self.nameless: bytearray()}
        self.map = mmap.mmap(self.file.fileno(), _FILE_BYTES)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        Bytes.round(self)  # the first write may ask for the attributes

    def round(self) -> None:
        for file, content in self.contents.items():
            at, data = self.random.randrange(_FILE_BYTES - 100), self.random.randbytes(100)
            assert os.pwrite(file.fileno(), data, at) == len(data)
            content.extend(bytes(max(0, at + len(data) - len(content))))
            content[at : at + len(data)] = data
            assert os.pread(file.fileno(), 200, at) == bytes(content[at : at + 200])
        at = self.random.randrange(_FILE_BYTES)
        assert self.map[at : at + 100] == bytes(self.contents[self.file][at : at + 100])


class Data(Bytes):
    """The same files, through handles of their own too, and by metadata."""

    def round(self) -> None:
        super().round()
        if self.random.random() < 0.02:
            self.whole()

    def whole(self) -> None:
        assert (self.directory / "open").read_bytes() == self.contents[self.file]
        assert os.fstat(self.nameless.fileno()).st_nlink == 0
        assert os.fstat(self.nameless.fileno()).st_size == len(self.contents[self.nameless])
        with (self.directory / "open").open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            raise AssertionError("the lock is gone")


class Objects(Load):
    """A sending zone, as Spark uses it: names that are published by a rename, and once."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        (directory / "commits").mkdir(parents=True)
        self.batch = 0

    def round(self) -> None:
        self.random.choice([self.publish, self.replace, self.read, self.remove])()

    def publish(self) -> None:
        name = f"commits/{self.batch}"
        temporary = self.directory / f"commits/.{self.batch}.tmp"
        data = self.random.randbytes(300)
        temporary.write_bytes(data)
        os.rename(temporary, self.directory / name)
        self.model[name] = data
        self.batch += 1

    def replace(self) -> None:
        name, data = self.name(), self.random.randbytes(300)
        (self.directory / name).write_bytes(data)
        self.model[name] = data

    def read(self) -> None:
        name = self.some()
        if name is not None:
            assert (self.directory / name).read_bytes() == self.model[name], name

    def remove(self) -> None:
        name = self.some()
        if name is not None:
            os.unlink(self.directory / name)
            del self.model[name]


class RocksDb(Load):
    """A database that changes and makes a checkpoint by hard links in each round."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        for name in ("rocksdb", "localState"):
            (directory / name).mkdir(exist_ok=True)
        self.steps = rocksdb_job.generations(directory, 0, "buffered")
        self.generation = next(self.steps)

    def round(self) -> None:
        self.generation = next(self.steps)

    def finish(self) -> None:
        self.steps.close()
        for path in ("rocksdb/db", f"localState/chk_{self.generation}"):
            found = rocksdb_job.differences(self.directory / path, self.generation)
            assert found.pop("keys"), path
            assert not any(found.values()), (path, found)


KINDS: dict[str, Callable[[Path, int], Load]] = {
    "names": Names,
    "bytes": Bytes,
    "data": Data,
    "objects": Objects,
    "rocksdb": RocksDb,
}


def main(kind: str, directory: str, seed: str) -> None:
    """Work until the input ends."""
    load = KINDS[kind](Path(directory), int(seed))
    print("ready", flush=True)
    rounds, longest, waits = 0, 0.0, []
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        load.round()
        seconds = time.monotonic() - began
        rounds, longest = rounds + 1, max(longest, seconds)
        if seconds > _WAIT_SECONDS:
            waits.append(seconds)
    load.finish()
    print(rounds, statistics.median(waits) if waits else 0.0, longest, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
