"""``file://``: what else a directory on a disk, perhaps on another machine's, has to be ready for."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    NameNotStorableError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from holdfast.remote import RemoteStore, file_directories
from holdfast.system import syscalls
from tests.support.processes.descriptors import open_below
from tests.unit.remote.test_remote_contract import content, opened, put

ROUNDS = 100
TICK_NS = 8 * 10**6


@pytest.fixture
def root(workspace: Path) -> Path:
    """Where the objects stand as files."""
    return workspace / "objects"


@pytest.fixture
def store(root: Path) -> RemoteStore:
    """A store over ``root``."""
    return opened(f"file://{root}")


def test_objects_are_plain_files(root: Path, store: RemoteStore) -> None:
    put(store, "a/b", b"readable without Holdfast", {"holdfast-digest": "x"})
    assert (root / "a/b").read_bytes() == b"readable without Holdfast"
    assert stat.S_IMODE((root / "a/b").stat().st_mode) & 0o600 == 0o600
    (root / "a/by-hand").write_bytes(b"put here")
    assert content(store, "a/by-hand") == b"put here"
    assert store.head("a/by-hand").metadata == {}


def test_objects_with_one_inode_number_and_size_within_a_tick_are_different_versions(
    root: Path, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells times by the tick before 6.13, and on some file systems."""
    set_attribute = os.setxattr

    def by_ticks(fd: int, *arguments: Any) -> None:
        set_attribute(fd, *arguments)
        tick_ns = time.time_ns() // TICK_NS * TICK_NS
        os.utime(fd, ns=(tick_ns, tick_ns))

    monkeypatch.setattr(os, "fsync", lambda _: None)  # so that many fit into a tick
    monkeypatch.setattr(os, "setxattr", by_ticks)
    inodes, etags = [], []
    for number in range(ROUNDS):
        etags.append(put(store, "a", b"%04d" % number, {"holdfast-digest": "x"}).etag)
        inodes.append((root / "a").stat().st_ino)
        store.delete(["a"])
    if len(set(inodes)) == ROUNDS:
        pytest.skip("this file system uses no number again so soon")
    assert len(set(etags)) == ROUNDS


def test_the_time_is_the_file_systems_where_its_clock_is_another_ones(
    root: Path, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_ns = time.time_ns
    for ahead_ns in (-(10**9), 10**9):
        monkeypatch.setattr(time, "time_ns", lambda ahead_ns=ahead_ns: real_ns() + ahead_ns)
        before_ns = real_ns()
        info = put(store, "a")
        assert before_ns - 10**8 < info.modified_ns < real_ns()


def test_a_disk_that_is_not_mounted_is_not_an_empty_store(root: Path, store: RemoteStore) -> None:
    put(store, "a/b")
    root.rename(root.with_name("elsewhere"))
    attempts: list[Callable[[], Any]] = [
        store.probe,
        lambda: store.head("a/b"),
        lambda: content(store, "a/b"),
        lambda: store.list_directory(""),
        lambda: store.list_directory("a"),
        lambda: list(store.list_tree("")),
        lambda: put(store, "new"),
        lambda: put(store, "new", create_only=True),
        lambda: put(store, "deeper/new"),
        lambda: store.write_private("own", b"", create_only=False),
        lambda: store.write_private("own", b"", create_only=True),
        lambda: store.copy("a/b", "c"),
        lambda: store.delete(["a/b"]),
    ]
    for attempt in attempts:
        with pytest.raises(RemoteUnavailableError, match="mounted"):
            attempt()
    root.mkdir()  # the mountpoint, with nothing mounted on it
    for attempt in attempts:
        with pytest.raises(RemoteUnavailableError, match="mounted"):
            attempt()
    assert list(root.iterdir()) == [], "nothing may be written to the disk below"
    root.rmdir()
    root.write_bytes(b"a file in its place")
    for attempt in attempts:
        with pytest.raises(RemoteUnavailableError, match="mounted"):
            attempt()
    root.unlink()
    root.with_name("elsewhere").rename(root)
    assert content(store, "a/b") == b"bytes"


@pytest.mark.promise("file-store")
@pytest.mark.parametrize("is_made_anew", [True, False])
@pytest.mark.parametrize("moment", ["setxattr", "link", "rename", "unlink", "rmdir"])
def test_no_change_is_confirmed_in_a_root_that_was_replaced_meanwhile(
    root: Path, store: RemoteStore, monkeypatch: pytest.MonkeyPatch, moment: str, is_made_anew: bool
) -> None:
    """As when its disk is unmounted and another one mounted, or none."""
    attempts: dict[str, list[Callable[[], Any]]] = {
        "setxattr": [lambda: put(store, "a/new", metadata={"holdfast-digest": "x"})],
        "link": [lambda: put(store, "a/once", create_only=True), lambda: store.copy("a/object", "a/copy")],
        "rename": [lambda: put(store, "a/new"), lambda: store.write_private("own", b"", create_only=False)],
        "unlink": [lambda: store.delete(["a/object"]), lambda: store.delete(["a/object", "b/missing"])],
        "rmdir": [lambda: store.prune("empty")],
    }
    real = getattr(os, moment)
    elsewhere = root.with_name("elsewhere")

    def replace_first(*arguments: Any, **places: Any) -> None:
        monkeypatch.setattr(os, moment, real)
        root.rename(elsewhere)
        root.mkdir()
        if is_made_anew:
            put(opened(f"file://{root}"), "a/object", b"of another disk")
        real(*arguments, **places)

    for attempt in attempts[moment]:
        put(store, "a/object")
        (root / "empty").mkdir()
        monkeypatch.setattr(os, moment, replace_first)
        with pytest.raises(RemoteUnavailableError, match="replaced meanwhile"):
            attempt()
        shutil.rmtree(root)
        shutil.rmtree(elsewhere)
        store = opened(f"file://{root}")


def test_a_change_in_a_disk_that_was_away_for_a_moment_is_confirmed(
    root: Path, store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def away(source: str, target: str, **places: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        root.rename(root.with_name("elsewhere"))
        rename(source, target, **places)
        root.with_name("elsewhere").rename(root)

    put(store, "a/other")
    monkeypatch.setattr(os, "rename", away)
    put(store, "a/b", b"placed")
    assert content(store, "a/b") == b"placed"


@pytest.mark.promise("file-store")
@pytest.mark.parametrize("kind", ["head", "content", "list", "delete"])
def test_what_is_missing_while_a_disk_is_mounted_is_not_missing_in_the_store(
    root: Path, store: RemoteStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    put(store, "a/b")
    elsewhere = root.with_name("elsewhere")
    root.rename(elsewhere)
    root.mkdir()
    look = syscalls.open_without_links

    def mounted_after_the_first_look(*arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(file_directories, "open_without_links", look)
        try:
            return look(*arguments, **options)
        finally:
            root.rmdir()
            elsewhere.rename(root)

    monkeypatch.setattr(file_directories, "open_without_links", mounted_after_the_first_look)
    attempts: dict[str, Callable[[], Any]] = {
        "head": lambda: store.head("a/b"),
        "content": lambda: content(store, "a/b"),
        "list": lambda: store.list_directory("a"),
        "delete": lambda: store.delete(["a/b"]),
    }
    with pytest.raises(RemoteUnavailableError, match="mounted"):
        attempts[kind]()
    assert content(store, "a/b") == b"bytes"


def test_what_is_no_object_is_left_alone(root: Path, store: RemoteStore, workspace: Path) -> None:
    put(store, "a/object")
    outside = workspace / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"not in the store")
    (root / "a/link").symlink_to(outside / "secret")
    (root / "a/dangling").symlink_to("nowhere")
    (root / "directory-link").symlink_to(outside)
    os.mkfifo(root / "a/fifo")
    (root / "a/bad\nname").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(root) + b"/a/\xff")).write_bytes(b"")
    assert set(store.list_directory("a").objects) == {"object"}
    assert store.list_directory("").directories == {"a"}
    assert [info.key for info in store.list_tree("")] == ["a/object"]
    for key in ("a/link", "a/dangling", "a/fifo"):
        with pytest.raises(ObjectMissingError):
            store.head(key)
        with pytest.raises(ObjectMissingError):
            content(store, key)
        assert store.find(key) is False
    put(store, "a/link", b"replaced")
    assert (outside / "secret").read_bytes() == b"not in the store", "a link is replaced, not followed"
    assert content(store, "a/link") == b"replaced"


def test_nothing_stays_staged(root: Path, store: RemoteStore) -> None:
    put(store, "a/object")
    put(store, "a/once", create_only=True)
    with pytest.raises(ObjectExistsError):
        put(store, "a/once", create_only=True)
    for _ in range(2):  # the second time a rename would do nothing: both names are the same file
        store.copy("a/object", "a/copy")
    store.write_private("own", b"", create_only=False)
    assert os.listdir(root / ".holdfast") == ["own"]


@pytest.fixture(params=["openat2", "no openat2"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that knows openat2(2), and one before 5.6."""

    def unknown(*_: object) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    if request.param == "no openat2":
        monkeypatch.setattr(syscalls, "_syscall", unknown)


@pytest.mark.usefixtures("kernel")
def test_a_link_to_a_directory_leads_nowhere(root: Path, store: RemoteStore, workspace: Path) -> None:
    outside = workspace / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "secret").write_bytes(b"not in the store")
    put(store, "a/b/object")
    (root / "a/link").symlink_to(outside)
    for directory in ("a/link", "a/link/below", "a/b/object", "a/b/none/deeper"):
        assert not store.list_directory(directory).exists
        for request in (store.head, partial(content, store), partial(store.copy, target="copied")):
            with pytest.raises(ObjectMissingError):
                request(f"{directory}/secret")
        store.delete([f"{directory}/secret"])
    for create_only in (False, True):
        for key in ("a/link/new", "a/link/below/new", "a/link/made/new", "a/b/object/new"):
            with pytest.raises(NameNotStorableError):
                put(store, key, create_only=create_only)
    store.prune("a/link/below")
    assert content(store, "a/b/object") == b"bytes"
    assert sorted(path.name for path in outside.rglob("*")) == ["below", "secret"]


def test_a_link_in_place_of_what_is_staged_is_no_store(root: Path, store: RemoteStore, workspace: Path) -> None:
    (root / ".holdfast").rmdir()
    (root / ".holdfast").symlink_to(workspace)
    for attempt in (store.probe, partial(put, store, "new")):
        with pytest.raises(RemoteUnavailableError, match="mounted"):
            attempt()
    with pytest.raises(RemoteRefusedError, match="can't be a remote store"):
        opened(f"file://{root}")
    assert {path.name for path in workspace.iterdir()} == {"objects"}


def test_what_cannot_be_read_as_metadata_is_none(root: Path, store: RemoteStore) -> None:
    put(store, "a")
    os.setxattr(root / "a", "user.holdfast", b"no json")
    assert store.head("a").metadata == {}


def test_a_version_stays_readable_while_it_is_replaced_and_deleted(store: RemoteStore) -> None:
    put(store, "a", b"old" * 2**20)
    body = store.read("a", 0, 3 * 2**20, "")
    put(store, "a", b"new")
    store.delete(["a"])
    assert b"".join(body.buffers) == b"old" * 2**20


def test_files_of_bodies_that_nobody_takes_are_closed(root: Path, store: RemoteStore) -> None:
    put(store, "a")
    before = open_below(root)
    for _ in range(20):
        store.read("a", 0, 5, "")
        next(store.read("a", 0, 5, "").buffers)
        store.head("a")
    assert open_below(root) == before


def test_a_refused_read_keeps_no_file_open(root: Path, store: RemoteStore) -> None:
    put(store, "a", b"old")
    before = open_below(root)
    with pytest.raises(ObjectChangedError) as kept:  # the error holds the frames, as a failed fetch does
        store.read("a", 0, 3, "another version")
    assert open_below(root) == before
    assert "another version" in str(kept.value)


@pytest.mark.parametrize("create_only", [False, True])
def test_a_writer_is_not_disturbed_by_who_removes_empty_directories(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch, create_only: bool
) -> None:
    function = "link" if create_only else "rename"
    real = getattr(os, function)
    pruned: list[str] = []

    def prune_first(source: str, target: str, **places: Any) -> None:
        if len(pruned) < 5:
            pruned.append(target)
            store.prune("a/b")
            store.prune("a")
        real(source, target, **places)

    monkeypatch.setattr(os, function, prune_first)
    put(store, "a/b/c", b"placed", create_only=create_only)
    assert len(pruned) == 5
    assert content(store, "a/b/c") == b"placed"


def test_nodes_that_write_and_prune_one_directory_get_along(root: Path, store: RemoteStore) -> None:
    other = opened(f"file://{root}")

    def work(node: RemoteStore) -> None:
        for number in range(ROUNDS):
            put(node, f"a/b/{id(node)}", b"%d" % number)
            assert content(node, f"a/b/{id(node)}") == b"%d" % number
            node.delete([f"a/b/{id(node)}"])
            node.prune("a/b")
            node.prune("a")

    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(work, node) for node in (store, other)]:
            result.result()
    assert store.list_directory("").directories == frozenset()


def test_no_staged_file_is_left_behind(root: Path, store: RemoteStore) -> None:
    put(store, "a", b"1")
    put(store, "a", b"2")
    store.copy("a", "b")
    store.copy("a", "b")
    for key in ("a", "a/below"):
        with pytest.raises(Exception, match=r"exists already|Not a directory"):
            put(store, key, create_only=True)
    assert list((root / ".holdfast").iterdir()) == []


def test_an_answer_that_nfs_lost_is_no_other_creation(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may carry out a link and, asked again, say that the name exists; the link count tells."""
    link = os.link

    def link_twice(source: str, target: str, **places: Any) -> None:
        link(source, target, **places)
        link(source, target, **places)

    monkeypatch.setattr(os, "link", link_twice)
    put(store, "a", b"mine", create_only=True)
    assert content(store, "a") == b"mine"


def test_space_is_asked_for_again(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", no_space)
        with pytest.raises(RemoteUnavailableError, match="No space left"):
            put(store, "a")
    with pytest.raises(ObjectMissingError):
        store.head("a")


def test_a_file_that_can_not_be_deleted_keeps_no_other(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a/bad", "a/good", "b"):
        put(store, key)
    unlink = os.unlink

    def refusing(path: str, **place: Any) -> None:
        if path == "bad":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        unlink(path, **place)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(RemoteRefusedError, match="DELETE a/bad"):
        store.delete(["a/bad", "a/good", "b"])
    assert [info.key for info in store.list_tree("")] == ["a/bad"]
