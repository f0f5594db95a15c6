"""The directory below a mountpoint: protected, looked at below what is mounted there, and released."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import covered_directory, mount_calls, mountpoint
from holdfast.covered_directory import CLOSED, COVERED, IMMUTABLE
from holdfast.errors import MountpointError
from tests.support.mounts import mounted, unserved
from tests.support.privileges import ALICE, needs_root

pytestmark = needs_root


@pytest.fixture
def place(workspace: Path) -> Iterator[Path]:
    path = workspace / "mount"
    path.mkdir()
    yield path
    covered_directory.release(str(path))


@pytest.fixture
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without immutable directories, or a process without the capability."""

    def refused(fd: int, *, on: bool) -> None:
        if on:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(covered_directory, "_set_immutable", refused)


def kinds(path: Path) -> list[str]:
    return [mount.file_system for mount in mountpoint.stack_on(str(path))]


def is_writable(path: Path) -> bool:
    try:
        (path / "file").touch()
    except OSError:
        return False
    return True


def test_a_protected_directory_takes_no_writes_until_it_is_released(place: Path) -> None:
    ground = covered_directory.protect(str(place), is_served=False)
    assert (ground.protection, ground.hidden, ground.is_unprotected) == (IMMUTABLE, [], False)
    assert not is_writable(place)
    covered_directory.release(str(place))
    assert is_writable(place)


def test_where_there_are_no_flags_a_cover_does_it(place: Path, no_flags: None) -> None:
    assert covered_directory.protect(str(place), is_served=False).protection == COVERED
    assert covered_directory.protect(str(place), is_served=False).protection == COVERED
    assert kinds(place) == ["tmpfs"], "one is enough"
    assert mountpoint.mount_at(str(place)) is None
    assert not is_writable(place)
    covered_directory.release(str(place))
    assert kinds(place) == []
    assert is_writable(place)


def test_a_directory_is_protected_below_a_mount_that_is_served(place: Path) -> None:
    with unserved(place):
        assert covered_directory.protect(str(place), is_served=True).protection == IMMUTABLE
    assert not is_writable(place)


def test_a_cover_goes_below_a_mount_that_is_served(place: Path, no_flags: None) -> None:
    with unserved(place):
        assert covered_directory.protect(str(place), is_served=True).protection == COVERED
        assert kinds(place) == [mountpoint.FILE_SYSTEM, "tmpfs"]
    assert not is_writable(place)


def test_a_cover_never_hides_a_mount_that_is_served(place: Path, no_flags: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_calls, "place_beneath", lambda mount, path: False)
    with unserved(place):
        ground = covered_directory.protect(str(place), is_served=True)
        assert ground.is_unprotected
        assert "the kernel can't put one below a mount" in ground.protection
        assert kinds(place) == [mountpoint.FILE_SYSTEM]


def test_a_dead_mount_is_covered_where_the_kernel_can_not_put_one_below(
    place: Path, no_flags: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_calls, "place_beneath", lambda mount, path: False)
    with unserved(place, held=False):
        assert covered_directory.protect(str(place), is_served=False).protection == COVERED
        assert not is_writable(place)
        covered_directory.release(str(place))
        assert kinds(place) == [mountpoint.FILE_SYSTEM]


def test_what_is_hidden_is_seen_below_a_mount(place: Path) -> None:
    (place / "lost").touch()
    os.mkdir(os.fsencode(place) + b"/\xff")
    with unserved(place):
        assert covered_directory.protect(str(place), is_served=True).hidden == ["\\xff", "lost"]
    covered_directory.release(str(place))


def test_a_first_mount_hides_nothing(place: Path) -> None:
    covered_directory.check_empty(str(place))
    (place / "one").touch()
    (place / "two").mkdir()
    refusal = r"is not empty, and the mount would hide what it holds \(one, two\); move that elsewhere, or choose"
    with pytest.raises(MountpointError, match=refusal):
        covered_directory.check_empty(str(place))
    with pytest.raises(MountpointError, match=refusal):
        covered_directory.protect(str(place), is_served=False, must_be_empty=True)
    assert is_writable(place), "what is refused is left as it was"


def test_what_was_protected_before_was_reported_before(place: Path) -> None:
    (place / "old").touch()
    assert covered_directory.protect(str(place), is_served=False).hidden == ["old"]
    covered_directory.check_empty(str(place))
    assert covered_directory.protect(str(place), is_served=False, must_be_empty=True).hidden == ["old"]


def test_another_file_system_on_the_mountpoint_is_no_cover(place: Path) -> None:
    with mounted("tmpfs", place):
        mount = mountpoint.mount_at(str(place))
        assert mount is not None
        assert not mount.is_cover


def test_an_ordinary_users_directory_is_closed_to_that_user_but_for_the_mount(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)

    def works() -> None:
        assert covered_directory.protect(str(place), is_served=False).protection == CLOSED
        assert not is_writable(place)
        with covered_directory.lent(str(place)) as landed:
            assert os.access(place, os.W_OK)
            (place / "lost").touch()
        assert landed == ["lost"]
        assert not is_writable(place)
        covered_directory.release(str(place))
        assert is_writable(place)

    ALICE.do(works)


def test_below_the_names_of_the_mount_its_owner_can_never_write(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)

    def works() -> None:
        for names in (["checkpoints"], ["checkpoints", "work"]):  # a store is added
            assert covered_directory.protect(str(place), names, is_served=False, must_be_empty=True).hidden == []
        with covered_directory.lent(str(place)) as landed:
            for name in ("checkpoints", "work"):
                with pytest.raises(PermissionError):
                    (place / name / "job").mkdir(parents=True)
                with pytest.raises(PermissionError):
                    os.listdir(place / name)
        assert landed == []
        assert not is_writable(place)
        covered_directory.check_empty(str(place))
        covered_directory.release(str(place))
        assert os.listdir(place) == []
        assert is_writable(place)

    ALICE.do(works)


def test_root_releases_what_an_ordinary_user_has_closed(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)
    ALICE.do(lambda: _closed_by(place))
    covered_directory.release(str(place))
    assert os.listdir(place) == []
    ALICE.do((place / "file").touch)


def _closed_by(place: Path) -> None:
    assert covered_directory.protect(str(place), ["work"], is_served=False).protection == CLOSED
    assert os.listdir(place) == ["work"]


def test_an_ordinary_user_is_told_of_a_directory_that_root_has_protected(place: Path) -> None:
    covered_directory.protect(str(place), is_served=False)

    def works() -> None:
        with pytest.raises(MountpointError, match="as root: holdfast umount --release"):
            covered_directory.protect(str(place), is_served=False)
        with pytest.raises(MountpointError, match="still takes no writes"):
            covered_directory.release(str(place))

    ALICE.do(works)


def test_another_users_directory_can_not_be_protected_by_an_ordinary_user(place: Path) -> None:
    place.chmod(0o777)
    ALICE.do(lambda: _is_unprotected(place))


def _is_unprotected(place: Path) -> None:
    assert covered_directory.protect(str(place), is_served=False).is_unprotected


def test_a_directory_of_a_file_system_without_flags_is_covered(workspace: Path) -> None:
    with mounted("ramfs", workspace / "ram") as ram:
        place = ram / "mount"
        place.mkdir()
        assert covered_directory.protect(str(place), is_served=False).protection == COVERED
        assert not is_writable(place)
        covered_directory.release(str(place))
        assert subprocess.run(["rmdir", place], check=False).returncode == 0
