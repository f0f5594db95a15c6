"""Rights to objects by their own paths: what is in the tree counts as it is there, all else as its store says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Durability
from holdfast.fs.inodes import object_rights
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.object_rights import READ, WRITE, ObjectRights
from holdfast.store import Tree
from holdfast.transfer import Ownership
from holdfast.zones import Zone, ZoneKind, ZonePath
from tests.support.users.privileges import ALICE, MALLORY, User, needs_root

pytestmark = needs_root

TEAM = 60_100
PREFIX = b"work/driver_x/blobStorage"
ZONE = Zone(ZoneKind.BLOB_STORAGE, PREFIX, "blobs", Durability.COMMIT, digests=True)


def place(key: str = "") -> ZonePath:
    return ZonePath(ZONE, PREFIX + (b"/" + key.encode() if key else b""))


def caller(user: User, gid: int | None = None) -> Caller:
    """A caller whose thread is not to be seen."""
    return Caller(user.uid, user.gid if gid is None else gid, 0)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The tree, with the root of the zone, which is root's."""
    (tmp_path / "blobs").mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def root_fd(tree: Path) -> Iterator[int]:
    fd = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def rights(root_fd: int, uid: int = -1, gid: int = -1, file_mode: int = 0o644, directory_mode: int = 0o755) -> ObjectRights:
    return ObjectRights(Tree(root_fd), {"blobs": Ownership(uid, gid, file_mode, directory_mode)})


def give(path: Path, user: User, mode: int) -> None:
    os.chown(path, user.uid, user.gid)
    path.chmod(mode)


def test_by_default_everybody_reads_and_root_alone_writes(root_fd: int) -> None:
    asked = rights(root_fd)
    for user in (ALICE, MALLORY):
        assert asked.may_search(place("a/b"), caller(user))
        assert asked.may_list(place("a/b"), caller(user))
        assert asked.may_access(place("a/b"), b"c", READ, caller(user))
        assert not asked.may_access(place("a/b"), b"c", WRITE, caller(user))
        assert not asked.may_put(place("a/b"), b"c", caller(user))
    assert asked.are_open_to_all(place("a/b"))
    assert asked.may_put(place("a/b"), b"c", Caller(0, 0, 0))


class OnSeveralDisks(Tree):
    """A tree with other disks, and with a placeholder in the zone or without. It counts the directories that are opened."""

    is_spread = True

    def __init__(self, root_fd: int, *, is_placed: bool) -> None:
        super().__init__(root_fd)
        self.is_placed = is_placed
        self.opened = 0

    def is_placed_below(self, path: bytes) -> bool:
        return self.is_placed and path == b"blobs"

    def open_child(self, directory_fd: int, name: bytes) -> int:
        self.opened += 1
        return super().open_child(directory_fd, name)


@pytest.mark.parametrize("is_placed", [True, False])
def test_each_directory_is_opened_only_where_one_may_be_on_another_disk(tree: Path, root_fd: int, is_placed: bool) -> None:
    (tree / "blobs/a/b/c/d").mkdir(parents=True)
    spread = OnSeveralDisks(root_fd, is_placed=is_placed)
    asked = ObjectRights(spread, {"blobs": Ownership(-1, -1, 0o644, 0o755)})
    assert asked.may_search(place("a/b/c/d"), caller(ALICE))
    assert spread.opened == (4 if is_placed else 0)


def test_deep_directories_are_gone_through_by_their_own_rights(tree: Path, root_fd: int) -> None:
    path, levels = tree / "blobs", 100  # more than are looked at from one descriptor
    for _ in range(levels):
        path /= "d"
        path.mkdir()
    (path / "x").touch()
    key, asked = "/".join("d" * levels), rights(root_fd)
    assert asked.may_access(place(key), b"x", READ, caller(ALICE))
    give(path / "x", ALICE, 0o600)
    assert asked.denied(place(key), [b"x", b"y"], READ, caller(MALLORY)) == [b"x"]
    give(path, ALICE, 0o700)
    assert not asked.may_search(place(key), caller(MALLORY))
    give(tree / "blobs/d/d", ALICE, 0o700)
    assert asked.denied(place(key), [b"x", b"y"], READ, caller(MALLORY)) == [b"x", b"y"]


def test_a_refusal_ends_the_way_down(tree: Path, root_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "blobs/secret/d/d/d").mkdir(parents=True)
    give(tree / "blobs/secret", ALICE, 0o700)
    looked_at, stat = [], os.stat

    def counted(path: bytes, **options: Any) -> os.stat_result:
        looked_at.append(path)
        return stat(path, **options)

    monkeypatch.setattr(object_rights, "file_stat", counted)
    assert not rights(root_fd).may_search(place("secret/d/d/d"), caller(MALLORY))
    assert looked_at == [b"blobs", b"blobs/secret"]


def test_no_user_has_rights_to_keys_that_no_store_can_have(root_fd: int) -> None:
    asked, longest = rights(root_fd, directory_mode=0o777), "d" * 200
    for key, is_free in (("/".join([longest] * 5), True), ("/".join([longest] * 6), False)):
        assert asked.may_search(place(key), caller(ALICE)) is is_free
        assert asked.may_access(place(key), b"x", READ, caller(ALICE)) is is_free
        assert asked.are_open_to_all(place(key)) is is_free
        assert asked.may_search(place(key), Caller(0, 0, 0))


def test_a_closed_directory_closes_all_below_it(tree: Path, root_fd: int) -> None:
    (tree / "blobs/secret/open").mkdir(parents=True)
    give(tree / "blobs/secret", ALICE, 0o700)
    asked = rights(root_fd)
    for below in ("secret", "secret/open", "secret/open/far", "secret/unknown"):
        assert not asked.may_search(place(below), caller(MALLORY))
        assert not asked.may_access(place(below), b"x", READ, caller(MALLORY))
        assert not asked.are_open_to_all(place(below))
        assert asked.may_search(place(below), caller(ALICE))
    assert asked.are_open_to_all(place())


def test_what_is_not_here_has_the_modes_of_the_store_and_the_owner_of_the_directory_above(tree: Path, root_fd: int) -> None:
    (tree / "blobs/team").mkdir()
    os.chown(tree / "blobs/team", ALICE.uid, TEAM)
    asked = rights(root_fd, file_mode=0o640, directory_mode=0o750)
    assert asked.may_access(place("team"), b"x", READ | WRITE, caller(ALICE))
    assert asked.may_access(place("team"), b"x", READ, caller(MALLORY, TEAM))
    assert not asked.may_access(place("team"), b"x", READ, caller(MALLORY))
    assert asked.may_search(place("team"), caller(MALLORY))
    assert not asked.may_search(place("team/sub"), caller(MALLORY))
    assert asked.may_put(place("team/sub"), b"x", caller(ALICE))


def test_to_put_something_into_a_directory_that_is_not_here_takes_both(tree: Path, root_fd: int) -> None:
    """The store's directories are Alice's, but the one above that is here is root's; and the other way round."""
    assert not rights(root_fd, uid=ALICE.uid).may_put(place("sub"), b"x", caller(ALICE))
    give(tree / "blobs", ALICE, 0o755)
    assert rights(root_fd).may_put(place("sub"), b"x", caller(ALICE))
    assert not rights(root_fd, uid=0).may_put(place("sub"), b"x", caller(ALICE))
    assert rights(root_fd, uid=0).may_put(place(), b"x", caller(ALICE))


def test_an_owner_or_member_without_the_right_does_not_get_that_of_others(tree: Path, root_fd: int) -> None:
    (tree / "blobs/x").touch()
    give(tree / "blobs/x", User(ALICE.uid, TEAM), 0o004)
    asked = rights(root_fd)
    assert not asked.may_access(place(), b"x", READ, caller(ALICE))
    assert not asked.may_access(place(), b"x", READ, caller(MALLORY, TEAM))
    assert asked.may_access(place(), b"x", READ, caller(MALLORY))


def test_in_a_sticky_directory_a_name_that_is_not_known_here_is_the_stores(tree: Path, root_fd: int) -> None:
    (tree / "blobs").chmod(0o1777)
    (tree / "blobs/own").touch()
    give(tree / "blobs/own", MALLORY, 0o644)
    asked = rights(root_fd)
    assert asked.may_put(place(), b"own", caller(MALLORY))
    assert not asked.may_put(place(), b"own", caller(ALICE))
    assert not asked.may_put(place(), b"new", caller(MALLORY))
    assert rights(root_fd, uid=ALICE.uid).may_put(place(), b"new", caller(ALICE))


def test_a_file_or_a_link_in_the_place_of_a_directory_lets_nobody_past(tree: Path, root_fd: int, tmp_path: Path) -> None:
    (tree / "blobs/file").touch()
    (tree / "elsewhere").mkdir()
    (tree / "blobs/link").symlink_to(tree / "elsewhere")
    asked = rights(root_fd)
    for name in ("file", "link"):
        assert not asked.may_search(place(name), caller(MALLORY))
        assert not asked.may_search(place(f"{name}/far"), caller(MALLORY))
    assert not asked.may_access(place(), b"link", READ, caller(MALLORY))


def test_a_path_that_is_too_long_to_be_looked_at_is_closed(root_fd: int) -> None:
    asked = rights(root_fd)
    assert not asked.may_access(place(), b"x" * 300, READ, caller(MALLORY))
