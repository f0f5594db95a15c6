"""Names and files that somebody who may write to a store's directory, or to its bucket, plants there."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability import Policy, sweep
from holdfast.control.messages import SweepRequest
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, settle
from tests.support.stores.lying_s3 import GOOD, LyingS3, Planted

MANY = 100
"""More names than make a LIST of a directory cheaper than asking about one of them."""


@pytest.fixture
def outside(workspace: Path) -> Path:
    """A directory of the machine's, which is no part of any store."""
    directory = workspace / "outside"
    directory.mkdir(mode=0o700)
    (directory / "secret").write_bytes(b"of root alone")
    return directory


def crowded(directory: Path) -> Path:
    """Make a directory of a store in which single names are asked for."""
    directory.mkdir(parents=True)
    for number in range(MANY):
        (directory / f"object-{number}").write_bytes(b"")
    return directory


def error_of(action: Callable[[], object]) -> int:
    """Return the errno with which ``action`` fails; 0 if it succeeds."""
    try:
        action()
    except OSError as problem:
        return problem.errno or 0
    return 0


def over(make_node: NodeFactory, lying: LyingS3) -> Node:
    """Return a started node over a server that knows no rules for names, with one good object."""
    node = make_node(**lying.stores, remote__retry_deadline_seconds=1, remote__metadata_ttl_seconds=0)
    node.environment.update(lying.place.environment)
    return node.start()


def still_serves(node: Node) -> None:
    """The daemon is there and reads what is honest, in as much memory as any."""
    assert (node.checkpoints / "good" / "file").read_bytes() == GOOD
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    most = next(line for line in lines if line.startswith("VmHWM"))
    assert int(most.split()[1]) * 1024 < 512 * 2**20


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.promise("file-store")
def test_a_link_to_a_directory_in_a_store_leads_nowhere(node: Node, remote_files: Path, outside: Path) -> None:
    """Who may write to the directory of a file:// store would read, write and delete any file of the node, as root."""
    (crowded(remote_files / "team") / "link").symlink_to(outside)
    (remote_files / "link").symlink_to(outside)
    for directory in (node.checkpoints / "team", node.checkpoints):
        assert "link" not in os.listdir(directory)
        for name in ("link", "link/secret", "link/new"):
            assert error_of((directory / name).read_bytes) == errno.ENOENT
        assert error_of(partial((directory / "link/new").write_bytes, b"planted")) == errno.ENOENT
        assert error_of((directory / "link/secret").unlink) == errno.ENOENT
    settle(node.checkpoints)
    assert files_in(outside) == {"secret": b"of root alone"}


@pytest.mark.promise("file-store")
def test_a_directory_that_becomes_a_link_is_not_written_through(node: Node, remote_files: Path, outside: Path) -> None:
    """Who swaps a directory in use for a link would have root write, replace and delete files elsewhere."""
    job = node.checkpoints / "job"
    job.mkdir()
    for name in ("secret", "other"):
        (job / name).write_bytes(b"of the job")
    (remote_files / "job").rename(remote_files / "job-before")
    (remote_files / "job").symlink_to(outside)
    for name in ("secret", "new"):
        assert error_of(partial((job / name).write_bytes, b"planted")) == errno.EILSEQ
    (job / "secret").unlink()
    settle(job)
    assert files_in(outside) == {"secret": b"of root alone"}


# --- names that files here can't have ---------------------------------------------------------------------------------


@pytest.mark.promise("stored-names")
def test_what_is_no_name_here_is_not_shown_and_hides_nothing_else(make_node: NodeFactory, lying: LyingS3) -> None:
    """One object with a name of 256 bytes would keep its whole directory from being listed or read."""
    node = over(make_node, lying)
    long, ok = "x" * 255, "b" * 30
    for name in (long, long + "x", "y" * 900, "z" * 300 + "/file", "w" * 1100, f"{ok}/below", ok, "good"):
        lying.objects[f"checkpoints/job/{name}"] = Planted(name.encode())
    job = node.checkpoints / "job"
    assert sorted(os.listdir(job)) == sorted([long, ok, "good"])
    assert (job / long).read_bytes() == long.encode()
    assert os.listdir(job / ok) == ["below"], "what is object and directory is a directory"
    for name in (long + "x", "y" * 900, "z" * 300):
        assert error_of((job / name).read_bytes) == errno.ENAMETOOLONG
    still_serves(node)


@pytest.mark.promise("stored-names")
def test_names_that_only_look_alike_are_different_files(make_node: NodeFactory, lying: LyingS3) -> None:
    """Who plants a name that is another one after decoding or normalisation would have a job read his file."""
    node = over(make_node, lying)
    names = ["e\u0301", "\u00e9", "%2e%2e", "..%2f", "a\\b", " ", "\u202e", "a%00", "...", "~", "-rf", "\u2025", ".holdfast"]
    for name in names:
        lying.objects[f"checkpoints/job/{name}"] = Planted(name.encode())
    job = node.checkpoints / "job"
    assert sorted(os.listdir(job)) == sorted(names)
    for name in names:
        assert (job / name).read_bytes() == name.encode()
    still_serves(node)


@pytest.mark.promise("stored-keys")
def test_nothing_is_planted_among_the_stores_own(make_node: NodeFactory, lying: LyingS3) -> None:
    """Who reads or writes what is staged below ``.holdfast/`` changes what others are about to commit."""
    node = over(make_node, lying)
    lying.objects["checkpoints/.holdfast/staged"] = Planted(b"on its way")
    assert ".holdfast" not in os.listdir(node.checkpoints)
    own = node.checkpoints / ".holdfast"
    assert error_of((own / "staged").read_bytes) == errno.ENOENT
    assert error_of(partial((own / "new").write_bytes, b"planted")) == errno.ENOENT
    assert error_of(partial(own.write_bytes, b"planted")) == errno.EPERM
    still_serves(node)


@pytest.mark.promise("stored-keys")
@pytest.mark.parametrize("bad", ["a//b", "../up", "./here", "line\nbreak", "end/"])
def test_a_key_that_is_no_path_closes_its_directory_alone(make_node: NodeFactory, lying: LyingS3, bad: str) -> None:
    """Who may write to one directory of a bucket would close all of it, or lead a node out of it."""
    node = over(make_node, lying)
    lying.objects[f"checkpoints/bad/{bad}"] = Planted(b"planted")
    assert error_of(partial(os.listdir, node.checkpoints / "bad")) in (0, errno.EIO)
    assert error_of((node.checkpoints / "bad" / "up").read_bytes) in (errno.ENOENT, errno.EIO)
    assert sorted(os.listdir(node.checkpoints)) == ["bad", "good"]
    still_serves(node)


# --- deep trees -------------------------------------------------------------------------------------------------------

LEVELS = 2500


@pytest.fixture
def deep(remote_files: Path) -> Iterator[Path]:
    """A tree of directories in a store that is deeper than any path."""
    top = remote_files / "deep"
    top.mkdir(parents=True)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.mark.promise("stored-trees")
def test_a_tree_that_is_deeper_than_any_path_ends_somewhere(make_node: NodeFactory, deep: Path) -> None:
    """Recursion, or a list of all directories above each, would end every daemon that sweeps the store."""
    node = make_node().start()
    with node.client() as client:
        assert client.checkpoints(str(node.checkpoints)) == []
        assert client.plan_sweep(SweepRequest(path=str(node.checkpoints))).count == 0
    assert deep.name in os.listdir(node.checkpoints)


@pytest.mark.promise("stored-trees")
def test_deep_names_take_as_much_memory_as_they_are_long() -> None:
    """A key of a kilobyte cost a quarter of a megabyte in each sweep: some ten thousand of them, the daemon's life."""
    listing = [Listed(b"%d/" % number + b"d/" * 500 + b"file", 1, 1) for number in range(1000)]
    tracemalloc.start()
    try:
        sweep(listing, Policy(), 2)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 20 * 2**20


# --- files that are no files ------------------------------------------------------------------------------------------


@pytest.mark.promise("file-store")
def test_what_is_put_in_place_of_an_object_is_neither_waited_for_nor_read(node: Node, remote_files: Path) -> None:
    """A FIFO would hold a thread of the daemon for ever, a device would be read with root's rights."""
    job = crowded(remote_files / "job")
    made: list[Callable[[Path], object]] = [
        os.mkfifo,
        partial(os.mknod, mode=stat.S_IFCHR | 0o666, device=os.makedev(1, 5)),
        partial(os.mknod, mode=stat.S_IFSOCK | 0o666),
        lambda path: path.symlink_to("/etc/shadow"),
    ]
    for number, make in enumerate(made):
        make(job / f"planted-{number}")
        assert error_of((node.checkpoints / "job" / f"planted-{number}").read_bytes) == errno.ENOENT
        (job / f"object-{number}").unlink()
        make(job / f"object-{number}")
        assert error_of((node.checkpoints / "job" / f"object-{number}").read_bytes) == errno.ENOENT
    assert (node.checkpoints / "job" / f"object-{len(made)}").read_bytes() == b""
