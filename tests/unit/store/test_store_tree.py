"""The backing tree: walked by descriptors, never along a symbolic link or upwards."""

from __future__ import annotations

import errno
import inspect
import os
import stat as stat_module
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE, Tree, rename_with_flags
from holdfast.store import tree as tree_module
from holdfast.store.disk_directories import within
from holdfast.store.held_directories import HeldDirectories
from holdfast.store.removal import remove
from holdfast.store.spread_tree import SpreadTree
from tests.support.disks.deep_trees import dig
from tests.support.processes.descriptors import open_below
from tests.support.users.privileges import as_nobody, needs_root

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


@pytest.fixture
def tree(root: Path) -> Iterator[Tree]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield Tree(fd)
    os.close(fd)
    assert open_below(root) == []


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that nothing in the tree may lead to."""
    path = tmp_path / "outside"
    (path / "deeper").mkdir(parents=True)
    (path / "secret").write_text("secret")
    return path


def where(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


# --- walking ----------------------------------------------------------------------------------------------------------


def test_directories_are_opened_by_path(tree: Tree, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    assert where(tree.open_directory(b"")) == str(root)
    assert where(tree.open_directory(b"a/b")) == str(root / "a" / "b")
    fd = tree.open_directory(b"a")
    assert where(tree.open_child(fd, b"b")) == str(root / "a" / "b")
    os.close(fd)


def test_a_moved_tree_is_still_the_same_tree(tree: Tree, root: Path) -> None:
    (root / "a").mkdir()
    root.rename(root.with_name("moved"))
    assert where(tree.open_directory(b"a")) == str(root.with_name("moved") / "a")


def test_what_is_missing_or_no_directory_is_told(tree: Tree, root: Path) -> None:
    (root / "file").touch()
    for path in (b"missing", b"missing/x"):
        with pytest.raises(FileNotFoundError):
            tree.open_directory(path)
        with pytest.raises(FileNotFoundError):
            tree.stat(path)
        assert tree.inode(path) == 0
    with pytest.raises(NotADirectoryError):
        tree.open_directory(b"file")
    with pytest.raises(NotADirectoryError):
        tree.stat(b"file/x")
    assert tree.inode(b"file/x") == 0
    assert tree.inode(b"file") == (root / "file").stat().st_ino


@pytest.mark.parametrize(
    "path", [b"..", b"a/..", b"a/../../outside", b"../outside", b".", b"a/./b", b"/", b"/etc", b"a//b", b"a/"]
)
def test_no_path_leads_upwards(tree: Tree, root: Path, outside: Path, path: bytes) -> None:
    (root / "a").mkdir()
    with pytest.raises(OSError, match="Invalid argument"):
        tree.open_directory(path)
    with pytest.raises(OSError, match="Invalid argument"):
        tree.make_directories(path, 0o755, -1, -1)
    assert sorted(os.listdir(outside)) == ["deeper", "secret"]


def test_no_symbolic_link_is_followed(tree: Tree, root: Path, outside: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "link").symlink_to(outside)
    (root / "up").symlink_to("..")
    for path in (b"a/link", b"a/link/deeper", b"up", b"up/outside"):
        with pytest.raises(NotADirectoryError):
            tree.open_directory(path)
        with pytest.raises(NotADirectoryError):
            tree.make_directories(path + b"/new", 0o755, -1, -1)
    with pytest.raises(NotADirectoryError):
        tree.stat(b"a/link/secret")
    assert stat_module.S_ISLNK(tree.stat(b"a/link").st_mode)
    assert [path for path, _ in tree.walk(b"")] == [b"up", b"a/link"]
    assert list(tree.walk(b"a/link")) == []
    with pytest.raises(NotADirectoryError):
        tree.remove_empty_directories(b"a/link")
    assert tree.remove_empty_directories(b"a") == []
    assert sorted(os.listdir(outside)) == ["deeper", "secret"]


def test_the_tree_itself_has_a_stat(tree: Tree, root: Path) -> None:
    assert tree.stat(b"").st_ino == tree.inode(b"") == root.stat().st_ino


def test_a_walk_finds_all_that_is_no_directory(tree: Tree, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty").mkdir()
    for name in ("x", "a/y", "a/b/z"):
        (root / name).write_text(name)
    os.mkfifo(root / "a" / "fifo")
    (root / "a" / os.fsdecode(b"\xff")).touch()
    found = dict(tree.walk(b""))
    assert sorted(found) == [b"a/b/z", b"a/fifo", b"a/y", b"a/\xff", b"x"]
    assert found[b"a/y"].st_size == 3
    assert sorted(path for path, _ in tree.walk(b"a/b")) == [b"a/b/z"]
    assert list(tree.walk(b"missing")) == []
    assert list(tree.walk(b"x")) == []


@pytest.fixture
def bad_blocks(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of directories that the disk can't read."""
    names: set[str] = set()
    scandir = os.scandir

    def scan(path: str) -> Any:
        if Path(path).readlink().name in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    return names


def test_a_walk_goes_round_a_directory_on_bad_blocks_if_somebody_wants_to_know_of_it(
    tree: Tree, root: Path, bad_blocks: set[str]
) -> None:
    """Gain: a scrub, and the look for what earlier zones have left, ended the daemon, at each of its starts."""
    for name in ("a/bad", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "file").touch()
    (root / "a/file").touch()
    bad_blocks.add("bad")
    left_out: list[tuple[bytes, OSError]] = []
    found = [path for path, _ in tree.walk(b"", unreadable=lambda *each: left_out.append(each))]
    assert sorted(found) == [b"a/file", b"b/file"]
    assert [(path, problem.errno) for path, problem in left_out] == [(b"a/bad", errno.EIO)]
    left_out.clear()
    assert [path for path, _ in tree.walk(b"a", unreadable=lambda *each: left_out.append(each))] == [b"a/file"]
    assert [path for path, _ in left_out] == [b"a/bad"]
    with pytest.raises(OSError, match="Input/output error"):
        list(tree.walk(b""))


def test_a_walk_whose_first_directory_is_on_bad_blocks_finds_nothing(
    tree: Tree, root: Path, bad_blocks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gain: the directory of a former zone that can't be opened ended the daemon at each of its starts."""
    left_out: list[tuple[bytes, OSError]] = []
    (root / "bad").mkdir()
    bad_blocks.add("bad")
    assert list(tree.walk(b"bad", unreadable=lambda *each: left_out.append(each))) == []
    assert [path for path, _ in left_out] == [b"bad"]

    def refuse(_: Tree, path: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(Tree, "open_directory", refuse)
    left_out.clear()
    assert list(tree.walk(b"zone", unreadable=lambda *each: left_out.append(each))) == []
    assert [(path, problem.errno) for path, problem in left_out] == [(b"zone", errno.EIO)]
    with pytest.raises(OSError, match="Input/output error"):
        list(tree.walk(b"zone"))


def test_a_walk_leaves_out_what_vanishes_meanwhile(tree: Tree, root: Path) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        (root / name / "file").touch()
    walk = tree.walk(b"")
    first, _ = next(walk)
    other = {b"a": "b", b"b": "a"}[first.partition(b"/")[0]]
    (root / other / "file").unlink()
    (root / other).rmdir()
    (root / other).touch()
    assert list(walk) == []


def test_the_depth_of_a_tree_is_not_bounded_by_the_interpreter(tree: Tree) -> None:
    path = b"/".join([b"d"] * 300)
    fd = tree.make_directories(path, 0o755, -1, -1)
    os.mknod(b"file", dir_fd=fd)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert [found for found, _ in tree.walk(b"")] == [path + b"/file"]
        os.unlink(b"file", dir_fd=fd)
        assert len(tree.remove_empty_directories(b"d")) == 300
    finally:
        sys.setrecursionlimit(limit)
        os.close(fd)


# --- making and removing ----------------------------------------------------------------------------------------------


def test_missing_directories_are_made_with_their_mode_whatever_the_umask(tree: Tree, root: Path) -> None:
    (root / "a").mkdir(mode=0o700)
    old = os.umask(0o077)
    try:
        assert where(tree.make_directories(b"a/b/c", 0o775, -1, -1)) == str(root / "a" / "b" / "c")
    finally:
        os.umask(old)
    modes = [stat_module.S_IMODE((root / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")]
    assert modes == [0o700, 0o775, 0o775]
    os.close(tree.make_directories(b"a/b/c", 0o700, -1, -1))
    assert stat_module.S_IMODE((root / "a" / "b").stat().st_mode) == 0o775


@needs_root
def test_new_directories_belong_to_whom_they_should(tree: Tree, root: Path) -> None:
    os.chown(root, 1234, 2345)
    os.close(tree.make_directories(b"inherited/deeper", 0o755, -1, -1))
    os.close(tree.make_directories(b"given/deeper", 0o755, 77, -1))
    owners = {
        name: ((root / name).stat().st_uid, (root / name).stat().st_gid) for name in ("inherited/deeper", "given/deeper")
    }
    assert owners == {"inherited/deeper": (1234, 2345), "given/deeper": (77, 2345)}


@needs_root
def test_the_set_group_id_bit_is_inherited(tree: Tree, root: Path) -> None:
    os.chown(root, 0, 2345)
    root.chmod(0o2755)
    os.close(tree.make_directories(b"a/b", 0o750, -1, -1))
    for name in ("a", "a/b"):
        stat = (root / name).stat()
        assert (stat_module.S_IMODE(stat.st_mode), stat.st_gid) == (0o2750, 2345)


def test_a_file_in_the_way_of_a_directory_is_told(tree: Tree, root: Path) -> None:
    (root / "a").touch()
    with pytest.raises(NotADirectoryError):
        tree.make_directories(b"a/b", 0o755, -1, -1)


def test_empty_directories_go_and_full_ones_stay(tree: Tree, root: Path) -> None:
    for name in ("a/empty/deeper", "a/full/empty", "beside"):
        (root / name).mkdir(parents=True)
    (root / "a" / "full" / "file").touch()
    inodes = {name: (root / name).stat().st_ino for name in ("a/empty", "a/empty/deeper", "a/full/empty")}
    gone = tree.remove_empty_directories(b"a")
    assert {path.decode(): inode for path, inode in gone} == inodes
    paths = [path for path, _ in gone]
    assert paths.index(b"a/empty/deeper") < paths.index(b"a/empty")
    assert sorted(os.listdir(root / "a")) == ["full"]
    (root / "a" / "full" / "file").unlink()
    assert [path for path, _ in tree.remove_empty_directories(b"a")] == [b"a/full", b"a"]
    assert tree.remove_empty_directories(b"a") == []
    assert tree.remove_empty_directories(b"a/full") == []
    assert os.listdir(root) == ["beside"]


names = st.sampled_from([b"a", b"b", b"c"])
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(paths, max_size=8), st.lists(paths, max_size=4))
def test_only_empty_directories_go(
    tmp_path_factory: pytest.TempPathFactory, directories: list[bytes], files: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    tree = Tree(fd)
    for path in directories:
        os.close(tree.make_directories(b"top/" + path, 0o755, -1, -1))
    for path in files:
        file = root / "top" / os.fsdecode(path) / "file"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    before = {path for path, _ in tree.walk(b"")}
    gone = [path for path, _ in tree.remove_empty_directories(b"top")]
    assert {path for path, _ in tree.walk(b"")} == before
    left = {os.fsencode(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}
    assert all(any(file.startswith(path + b"/") for file in before) for path in left)
    assert not left & set(gone)
    os.close(fd)


# --- renameat2 --------------------------------------------------------------------------------------------------------


def test_a_rename_that_must_not_replace(tree: Tree, root: Path) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    with pytest.raises(FileExistsError) as caught:
        rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"b", RENAME_NOREPLACE)
    assert (caught.value.filename, caught.value.filename2) == (b"a", b"b")
    rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"c", RENAME_NOREPLACE)
    assert (root / "b").read_text() + (root / "c").read_text() == "ba"


def test_a_rename_that_exchanges(tree: Tree, root: Path) -> None:
    (root / "a").write_text("a")
    (root / "b").mkdir()
    rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"b", RENAME_EXCHANGE)
    assert (root / "b").read_text() == "a"
    assert (root / "a").is_dir()
    with pytest.raises(FileNotFoundError):
        rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"missing", RENAME_EXCHANGE)


def test_a_rename_without_flags_replaces(tree: Tree, root: Path) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"b", 0)
    assert os.listdir(root) == ["b"]
    assert (root / "b").read_text() == "a"


def test_flags_that_contradict_each_other(tree: Tree) -> None:
    with pytest.raises(OSError, match="Invalid argument") as caught:
        rename_with_flags(tree.root_fd, b"a", tree.root_fd, b"b", RENAME_NOREPLACE | RENAME_EXCHANGE)
    assert caught.value.errno == errno.EINVAL


@needs_root
@pytest.mark.parametrize("mode", [0, 0o100, 0o444])
def test_a_walk_leaves_out_what_is_closed_to_this_user(root: Path, tree: Tree, mode: int) -> None:
    for name in ("closed", "open"):
        (root / name / "below").mkdir(parents=True)
        (root / name / "file").touch()
    (root / "closed").chmod(mode)

    def walk() -> None:
        assert [path for path, _ in tree.walk(b"")] == [b"open/file"]

    as_nobody(walk)


def _unknown_call(directory_fd: int, path: bytes, flags: int) -> int:
    raise NotImplementedError


@pytest.mark.parametrize("knows_openat2", [True, False])
def test_a_deep_directory_is_opened_without_following_links(
    knows_openat2: bool, root: Path, tree: Tree, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not knows_openat2:
        monkeypatch.setattr(tree_module, "open_without_links", _unknown_call)
    levels = 3000  # a path of more than PATH_MAX
    fd = dig(root, levels)
    os.symlink(outside, "link", dir_fd=fd)
    deepest = os.fstat(fd).st_ino
    os.close(fd)
    way = b"/".join([b"d"] * levels)
    opened = tree.open_directory(way)
    assert os.fstat(opened).st_ino == deepest
    os.close(opened)
    with pytest.raises(NotADirectoryError):
        tree.open_directory(way + b"/link/deeper")
    with pytest.raises(FileNotFoundError):
        tree.open_directory(way + b"/d/d")
    below = tree.open_below(tree.root_fd, b"d/d/d")
    assert os.fstat(below).st_ino == (root / "d/d/d").stat().st_ino
    os.close(below)
    remove(tree.root_fd, b"d")  # pytest's own removal is recursive


def test_a_way_of_any_depth_leads_through_a_tree_on_several_disks(root: Path) -> None:
    root_fd = os.open(root, os.O_RDONLY)
    deepest_fd = os.dup(root_fd)
    for _ in range(1500):
        os.mkdir("d", dir_fd=deepest_fd)
        below_fd = os.open("d", os.O_RDONLY, dir_fd=deepest_fd)
        os.close(deepest_fd)
        deepest_fd = below_fd
    tree = SpreadTree(root_fd, HeldDirectories(), [], [])
    fd = tree.open_below(root_fd, b"/".join([b"d"] * 1500))
    assert os.path.samestat(os.fstat(fd), os.fstat(deepest_fd))
    for each in (root_fd, deepest_fd, fd):
        os.close(each)


def test_a_disk_that_does_not_answer_is_not_waited_for() -> None:
    never = threading.Event()

    def probe() -> None:
        never.wait()

    with pytest.raises(OSError, match="it has not answered"):
        within(0.01, probe)
    never.set()
