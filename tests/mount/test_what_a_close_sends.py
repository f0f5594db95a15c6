"""Every way to change a file: the store has its bytes when the call that ends the change returns, or that call fails."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node

BEFORE = b"0123456789"
Change = Callable[[Path], None]


def opened(flags: int, change: Callable[[int], object] = lambda fd: None) -> Change:
    """Return the change that opens a file with ``flags``, does ``change`` to the descriptor, and closes it."""

    def go(path: Path) -> None:
        fd = os.open(path, flags)
        try:
            change(fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its error is the result

    return go


def mapped(fd: int) -> None:
    with mmap.mmap(fd, len(BEFORE)) as mapping:
        mapping[:3] = b"xyz"


def mapped_and_synced(fd: int) -> None:
    with mmap.mmap(fd, len(BEFORE)) as mapping:
        mapping[:3] = b"xyz"
        mapping.flush()


def copied(fd: int) -> None:
    assert os.copy_file_range(fd, fd, 3, 7, 0) == 3


def written_with_old_attributes(fd: int) -> None:
    before = os.fstat(fd)
    os.pwrite(fd, b"xyz", 0)
    os.fchmod(fd, 0o600)
    os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))


def duplicated(fd: int) -> None:
    os.pwrite(fd, b"xyz", 0)
    os.close(os.dup(fd))


def truncated_while_it_is_read(path: Path) -> None:
    with path.open("rb"):
        os.truncate(path, 4)


def emptied_while_it_is_read(path: Path) -> None:
    with path.open("rb"):
        os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


CHANGES: dict[str, tuple[Change, bytes]] = {
    "O_RDONLY|O_TRUNC": (opened(os.O_RDONLY | os.O_TRUNC), b""),
    "O_WRONLY|O_TRUNC": (opened(os.O_WRONLY | os.O_TRUNC), b""),
    "O_RDWR|O_TRUNC|O_APPEND": (opened(os.O_RDWR | os.O_TRUNC | os.O_APPEND), b""),
    "O_RDONLY|O_TRUNC, then read": (opened(os.O_RDONLY | os.O_TRUNC, lambda fd: os.read(fd, 10)), b""),
    "emptied while it is read": (emptied_while_it_is_read, b""),
    "truncate": (lambda path: os.truncate(path, 4), b"0123"),
    "truncate, longer": (lambda path: os.truncate(path, 12), BEFORE + bytes(2)),
    "truncate while it is read": (truncated_while_it_is_read, b"0123"),
    "ftruncate": (opened(os.O_RDWR, lambda fd: os.ftruncate(fd, 4)), b"0123"),
    "fallocate": (opened(os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 12)), BEFORE + bytes(2)),
    "copy_file_range": (opened(os.O_RDWR, copied), b"7893456789"),
    "times and mode after a write": (opened(os.O_RDWR, written_with_old_attributes), b"xyz3456789"),
    "a duplicate": (opened(os.O_RDWR, duplicated), b"xyz3456789"),
    "a mapping": (opened(os.O_RDWR, mapped), b"xyz3456789"),
    "msync": (opened(os.O_RDWR, mapped_and_synced), b"xyz3456789"),
}


@contextmanager
def refusing(directory: Path) -> Iterator[None]:
    """Let the store take nothing in ``directory``."""
    subprocess.run(["chattr", "+i", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", directory], check=True)


@pytest.fixture(params=[True, False], ids=["passthrough", "through the daemon"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    return make_node(mount__passthrough=request.param, remote__retry_deadline_seconds=0.1).start()


@pytest.mark.promise("changes-sent")
def test_the_store_has_what_was_changed_in_whatever_way_when_the_close_returns(node: Node, remote_files: Path) -> None:
    directory = node.checkpoints / "query"
    directory.mkdir()
    found = {}
    for number, (name, (change, _)) in enumerate(CHANGES.items()):
        (directory / f"{number}").write_bytes(BEFORE)
        change(directory / f"{number}")
        found[name] = (remote_files / f"query/{number}").read_bytes()
    assert found == {name: after for name, (_, after) in CHANGES.items()}


@pytest.mark.promise("changes-sent")
def test_a_change_in_whatever_way_that_the_store_refuses_is_an_error(node: Node, remote_files: Path) -> None:
    directory = node.checkpoints / "query"
    directory.mkdir()
    for number in range(len(CHANGES)):
        (directory / f"{number}").write_bytes(BEFORE)
    silent = []
    with refusing(remote_files / "query"):
        for number, (name, (change, _)) in enumerate(CHANGES.items()):
            try:
                change(directory / f"{number}")
            except OSError:
                continue
            silent.append(name)
    assert silent == []
    for number, (_, after) in enumerate(CHANGES.values()):  # sent as soon as the store takes it, or with the next close
        with (directory / f"{number}").open("r+b"):
            pass
        assert (remote_files / f"query/{number}").read_bytes() == after


def test_what_only_opens_a_file_sends_nothing(node: Node) -> None:
    path = node.checkpoints / "file"
    path.write_bytes(BEFORE)
    before = node.requests()["PUT"]
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND):
        opened(flags)(path)
    path.chmod(0o600)
    os.utime(path, ns=(1, 2))
    assert node.requests()["PUT"] == before
