"""Power cuts of a node under load: its disk at random moments, and what a daemon makes of each after the reboot.

The load writes in every zone and at every level of durability, and notes what was acknowledged. At a cut the daemon stands
still, while images of its disk and of the remote store are taken. Then it goes on, so that one load serves for many cuts.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemons.faults.takeover import BOOT_ID
from tests.support.daemons.node import Node, settle, wait_until
from tests.support.disks.ledger import Ledger, content
from tests.support.disks.recorded_disk import RecordedDisk
from tests.support.processes.stopping import stand_still
from tests.support.stores.s3 import Versitygw

KEPT = (0.0, 0.5, 0.9)
"""The chances that a block which was not flushed is on the disk all the same."""
_FOREIGN = 40
_NAMES = 12
_LONGEST_PAUSE_SECONDS = 0.3
_LOOKS_APART_SECONDS = 0.02


@dataclass(frozen=True)
class Cut:
    """One moment: the images of disk and store, and what was acknowledged before."""

    number: int
    image: Path
    remote: Path
    ledger: Ledger
    pins: list[str]


class PowerCuts:
    """A node in ``directory``, with these settings, whose store is on a disk of ``kind``.

    Its objects are in a directory, or on ``server``: then in this place, which nobody else may use.
    """

    def __init__(self, kind: str, directory: Path, seed: int, *, server: Versitygw | None = None, **settings: Any) -> None:
        self.directory = directory
        self._settings = settings
        self.kind = kind
        self._chance = random.Random(seed)
        self._server = server
        self._remote = directory / "remote" if server is None else server.directory
        self._boot_id = directory / "boot_id"
        self._disk_path = directory / "disk"
        self._ledger = Ledger()
        self._pins: list[str] = []
        self._boots = 0

    def collect(self, cuts: int) -> list[Cut]:
        """Run a daemon under load, and cut its power so many times. Raises ``AssertionError`` if the load fails."""
        self._make_foreign_objects()
        with (
            RecordedDisk(self.kind, self._disk_path, self.directory / "disk.img") as disk,
            self._node() as node,
            Load(node, self._ledger, self._pins, self._chance.random()) as load,
        ):
            return [self._cut(disk, node, load, number) for number in range(cuts)]

    def cut_after_an_orderly_stop(self) -> Cut:
        """Let a daemon fetch everything and end in order; cut the power then."""
        self._make_foreign_objects()
        image, remote = self.directory / "cut.img", self.directory / "remote0"
        with RecordedDisk(self.kind, self._disk_path, self.directory / "disk.img") as disk:
            with self._node() as node:
                (node.work / "reader_1").mkdir()
                for name, _ in foreign_objects():
                    for path in _shown(node, name):
                        path.read_bytes()
                node.stop()
            disk.cut(image, self._chance.getrandbits(32), 0.0)
        shutil.copytree(self._remote, remote)
        return Cut(0, image, remote, self._ledger, [])

    def check(self, cut: Cut) -> list[str]:
        """Start on the images of a cut; return what is lost or wrong."""
        self._put_back(cut.remote)
        with RecordedDisk(self.kind, self._disk_path, cut.image), self._node() as node:
            return self._problems(cut, node)

    def check_after_another(self, cut: Cut) -> list[str]:
        """The same, with another power cut at some moment of the start or the recovery."""
        self._put_back(cut.remote)
        image = cut.image.with_suffix(".again")
        with RecordedDisk(self.kind, self._disk_path, cut.image) as disk, self._node() as node:
            time.sleep(self._chance.uniform(0.0, _LONGEST_PAUSE_SECONDS))
            os.kill(node.pid, signal.SIGSTOP)
            disk.cut(image, self._chance.getrandbits(32), self._chance.choice(KEPT))
            node.kill()
        with RecordedDisk(self.kind, self._disk_path, image), self._node() as node:
            found = self._problems(cut, node)
        image.unlink()
        return found

    def _cut(self, disk: RecordedDisk, node: Node, load: Load, number: int) -> Cut:
        time.sleep(self._chance.uniform(0.0, _LONGEST_PAUSE_SECONDS))
        load.raise_problems()
        remote = self.directory / f"remote{number}"
        image = self.directory / f"cut{number}.img"
        daemon = node.pid
        os.kill(daemon, signal.SIGSTOP)
        try:
            ledger, pins = self._ledger.copy(), list(self._pins)
            disk.cut(image, self._chance.getrandbits(32), self._chance.choice(KEPT))
            wait_until(lambda: stand_still([daemon]) and self._is_still() and self._is_copied_to(remote))
        finally:
            os.kill(node.pid, signal.SIGCONT)
        return Cut(number, image, remote, ledger, pins)

    def _problems(self, cut: Cut, node: Node) -> list[str]:
        found = cut.ledger.problems(node.mountpoint)
        for name, size_bytes in foreign_objects():
            wanted = content(name, 0).ljust(size_bytes, b"x")
            found += [
                f"{path} has bytes that nobody has written" for path in _shown(node, name) if path.read_bytes() != wanted
            ]
        with node.client() as client:
            found += [f"{path} is not pinned" for path in cut.pins if not client.entry(path).pinned]
        try:
            wait_until(lambda: not _not_sent(cut, node))
        except AssertionError:
            with node.client() as client:
                found += [f"{path} is not sent: {client.why(str(node.mountpoint / path))}" for path in _not_sent(cut, node)]
        return [f"cut {cut.number}: {problem}" for problem in found]

    @contextmanager
    def _node(self) -> Iterator[Node]:
        self._boots += 1
        self._boot_id.write_text(f"boot {self._boots}")
        base = f"file://{self._remote}" if self._server is None else self._server.url
        urls = {name: f"{base}/{name}" for name in ("checkpoints", "blobs", "later", "never")}
        node = Node(
            self.directory / "node",
            urls["checkpoints"],
            urls["blobs"],
            stores__later__url=urls["later"],
            stores__later__durability="async",
            stores__never__url=urls["never"],
            stores__never__durability="local",
            **self._settings,
        )
        node.store = self._disk_path / "store"
        node.settings["store.directory"] = node.store
        node.faults = ["rebooted"]
        node.environment[BOOT_ID] = str(self._boot_id)
        if self._server is not None:
            node.environment.update(self._server.environment)
        try:
            yield node.start()
        finally:
            node.clean_up()

    def _make_foreign_objects(self) -> None:
        for name, size_bytes in foreign_objects():
            data = content(name, 0).ljust(size_bytes, b"x")
            if self._server is not None:
                key = self._server.key(f"checkpoints/{name}")
                self._server.client().put_object(Bucket=self._server.bucket, Key=key, Body=data)
            else:
                path = self._remote / "checkpoints" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def _is_still(self) -> bool:
        """Say whether the server has done what it was asked before the daemon stood still: nothing changes any more."""
        if self._server is None:
            return True
        try:
            before = _shape(self._remote)
            time.sleep(_LOOKS_APART_SECONDS)
            return _shape(self._remote) == before
        except FileNotFoundError:
            return False

    def _is_copied_to(self, remote: Path) -> bool:
        """Copy the remote store; say whether it has stayed the same meanwhile."""
        shutil.rmtree(remote, ignore_errors=True)
        try:
            before = _shape(self._remote)
            # Not by a process: it would wait for the daemon, to close what is open here.
            shutil.copytree(self._remote, remote)
            return _shape(self._remote) == before
        except (FileNotFoundError, shutil.Error):
            return False

    def _put_back(self, remote: Path) -> None:
        for path in self._remote.iterdir():  # the directory stays: a server may have it open
            shutil.rmtree(path)
        shutil.copytree(remote, self._remote, dirs_exist_ok=True)


def _shape(directory: Path) -> list[tuple[str, int, int]]:
    """Return all paths below, each with its inode and when it was last changed. Raises ``FileNotFoundError``."""
    paths = [Path(base, name) for base, directories, files in os.walk(directory) for name in (*directories, *files)]
    found = [(str(path), path.lstat()) for path in paths]
    return sorted((path, status.st_ino, status.st_ctime_ns) for path, status in found)


def _not_sent(cut: Cut, node: Node) -> list[str]:
    """Return what the daemon has still to send by itself: what was closed in an ``async`` store before the cut."""
    paths = [Path(path).relative_to(node.mountpoint) for path in node.status().unsent]
    return [str(path) for path in paths if path.parts[0] == "later" and cut.ledger.is_settled(str(path))]


def _shown(node: Node, name: str) -> tuple[Path, Path]:
    """Return the two paths at which a node shows an object."""
    return node.checkpoints / name, node.work / "reader_1/localState" / name


def foreign_objects() -> list[tuple[str, int]]:
    """Return names and sizes of objects that another program has put into the store, without digests."""
    return [(f"foreign/{number}", 3_000 * (number + 1)) for number in range(_FOREIGN)]


class Load:
    """Threads that work on a node until the end of a ``with`` statement, and note what was acknowledged."""

    def __init__(self, node: Node, ledger: Ledger, pins: list[str], seed: float) -> None:
        for name in ("worker_1/localState", "reader_1"):
            directory = node.work / name.partition("/")[0]
            directory.mkdir()
            for each in (node.work / name, directory, node.work, node.mountpoint):
                settle(each)
        for zone in ("checkpoints", "later", "never"):
            (node.mountpoint / zone / "q").mkdir()
            settle(node.mountpoint / zone)
        writers = [
            Writer(node, ledger, "work/worker_1/localState", f"{seed}", syncs=True),
            Writer(node, ledger, "work/worker_1/rocksdb", f"{seed}", syncs=True),
            Writer(node, ledger, "checkpoints/q", f"{seed}", syncs=False),
            Writer(node, ledger, "later/q", f"{seed}", syncs=False),
            Writer(node, ledger, "never/q", f"{seed}", syncs=True),
        ]
        steps = [writer.step for writer in writers] + [Reader(node, f"{seed}").step, Pinning(node, pins).step]
        self._threads = [threading.Thread(target=self._work, args=[step]) for step in steps]
        self._problems: list[BaseException] = []
        self._is_over = threading.Event()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.raise_problems()

    def raise_problems(self) -> None:
        """Raise the first error of a thread."""
        if self._problems:
            raise self._problems[0]

    def _work(self, step: Callable[[], None]) -> None:
        try:
            while not self._is_over.is_set():
                step()
        except BaseException as problem:  # noqa: BLE001 the test raises it
            self._problems.append(problem)


class Writer:
    """Writes, publishes by rename, and deletes files of one directory. With ``syncs`` only fsync acknowledges."""

    def __init__(self, node: Node, ledger: Ledger, directory: str, seed: str, *, syncs: bool) -> None:
        self._mountpoint = node.mountpoint
        self._ledger = ledger
        self._directory = directory
        self._chance = random.Random(f"{seed} {directory}")
        self._syncs = syncs
        self._is_sent_late = directory.startswith("later/")

    def step(self) -> None:
        """Change one file."""
        name = f"{self._directory}/{self._chance.randrange(_NAMES)}"
        self._chance.choice([self._write, self._publish, self._publish, self._delete])(name)

    def _write(self, name: str) -> None:
        with self._ledger.change(name, may_be_torn=True, is_sent_late=self._is_sent_late) as data:
            self._put(self._mountpoint / name, data)

    def _publish(self, name: str) -> None:
        path = self._mountpoint / name
        with self._ledger.change(name, is_sent_late=self._is_sent_late) as data:
            temporary = path.with_name(f".{path.name}.tmp")
            self._put(temporary, data)
            temporary.rename(path)
            self._settle()

    def _delete(self, name: str) -> None:
        with self._ledger.change(name, deletes=True):
            (self._mountpoint / name).unlink(missing_ok=True)
            settle(self._mountpoint / self._directory)

    def _put(self, path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data)
            if self._syncs:
                file.flush()
                os.fsync(file.fileno())
        self._settle()

    def _settle(self) -> None:
        if self._syncs:
            settle(self._mountpoint / self._directory)


class Reader:
    """Reads the foreign objects, in the two places where they are shown."""

    def __init__(self, node: Node, seed: str) -> None:
        self._node = node
        self._chance = random.Random(f"{seed} reader")

    def step(self) -> None:
        """Read one."""
        name, size_bytes = self._chance.choice(foreign_objects())
        path = self._chance.choice(_shown(self._node, name))
        assert path.stat().st_size == max(size_bytes, len(content(name, 0)))
        path.read_bytes()


class Pinning:
    """Pins one object after the other."""

    def __init__(self, node: Node, pins: list[str]) -> None:
        self._node = node
        self._pins = pins
        self._paths = iter([str(node.checkpoints / name) for name, _ in foreign_objects()])

    def step(self) -> None:
        """Pin the next object, if there is one."""
        path = next(self._paths, None)
        if path is None:
            time.sleep(_LONGEST_PAUSE_SECONDS)
            return
        with self._node.client() as client:
            client.pin(path)
        self._pins.append(path)
