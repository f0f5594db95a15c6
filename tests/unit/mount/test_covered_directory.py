"""The directory below a mountpoint: protected, looked at below what is mounted there, and released."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from holdfast.errors import MountpointBusyError, MountpointError, NotMountedError
from holdfast.mount import covered_directory, mount_calls, mountpoint, protection_marks
from holdfast.mount.covered_directory import CLOSED, COVERED, IMMUTABLE
from tests.support.disks.mounts import mounted, unserved
from tests.support.users.privileges import ALICE, needs_root

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

    monkeypatch.setattr(protection_marks, "set_immutable", refused)


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


@pytest.mark.promise("hidden-files")
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


@pytest.mark.promise("mountpoint-protected")
@pytest.mark.parametrize("is_mounted", [False, True])
def test_what_a_directory_holds_takes_no_writes_either(place: Path, is_mounted: bool) -> None:
    """An immutable directory takes no new names, but what is in it does, and so would a job's directory from long ago."""
    (place / "checkpoints/job").mkdir(parents=True)
    (place / "file").touch()
    with unserved(place) if is_mounted else nullcontext():
        ground = covered_directory.protect(str(place), is_served=is_mounted)
        assert (ground.protection, ground.hidden) == (COVERED, ["checkpoints", "file"])
    with pytest.raises(OSError, match="Read-only file system"):
        (place / "checkpoints/job").mkdir(parents=True, exist_ok=True)
    with pytest.raises(OSError, match="Read-only file system"):
        (place / "file").write_bytes(b"lost")
    with mount_calls.bare(str(place)) as below:
        assert protection_marks.is_immutable(below), "a cover does not outlast a reboot"
    covered_directory.release(str(place))
    assert (place / "file").read_bytes() == b""
    assert is_writable(place / "checkpoints/job")


def test_what_can_not_be_covered_and_holds_something_is_told_of(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_calls, "place_beneath", lambda mount, path: False)
    (place / "file").touch()
    with unserved(place):
        ground = covered_directory.protect(str(place), is_served=True)
        assert ground.is_unprotected
        assert "what it holds takes writes, because it can't be covered" in ground.protection


def test_below_a_mount_of_an_unbindable_file_system_it_is_covered_unseen(workspace: Path) -> None:
    with mounted("tmpfs", workspace / "ram") as ram:
        subprocess.run(["mount", "--make-unbindable", ram], check=True)
        place = ram / "mount"
        with unserved(place, held=False):
            assert covered_directory.protect(str(place), is_served=False).protection == COVERED
        assert kinds(place) == ["tmpfs"]
        assert not is_writable(place)
        covered_directory.release(str(place))


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


@pytest.mark.promise("mountpoint-of-a-user")
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


@pytest.mark.promise("mountpoint-of-a-user")
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


@pytest.mark.promise("mountpoint-of-a-user")
def test_what_an_ordinary_users_directory_holds_takes_no_writes_either(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)

    def works() -> None:
        (place / "checkpoints/job").mkdir(parents=True, mode=0o750)
        (place / "checkpoints").chmod(0o750)
        ground = covered_directory.protect(str(place), ["checkpoints", "work"], is_served=False)
        assert (ground.protection, ground.hidden) == (CLOSED, ["checkpoints"])
        with pytest.raises(PermissionError):
            (place / "checkpoints/job").mkdir(exist_ok=True)
        with covered_directory.lent(str(place)), pytest.raises(PermissionError):
            (place / "checkpoints/job").mkdir(exist_ok=True)
        (place / "checkpoints").chmod(0o700)  # its owner may, and the next start shuts it again
        assert covered_directory.protect(str(place), ["checkpoints", "work"], is_served=False).hidden == ["checkpoints"]
        assert stat.S_IMODE((place / "checkpoints").stat().st_mode) == 0
        assert covered_directory.release(str(place))
        assert stat.S_IMODE((place / "checkpoints").stat().st_mode) == 0o700
        assert os.listdir(place) == ["checkpoints"]
        (place / "checkpoints/job/file").touch()

    ALICE.do(works)


def test_an_ordinary_user_is_told_of_directories_of_others_that_take_writes(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)
    (place / "roots").mkdir()

    def works() -> None:
        ground = covered_directory.protect(str(place), ["work"], is_served=False)
        assert ground.is_unprotected
        assert ground.protection.endswith("directories in it take writes: roots")

    ALICE.do(works)


def test_only_what_belongs_to_the_directorys_owner_is_opened_again(place: Path) -> None:
    """Gain: root releases a directory in which its owner has forged the note, and opens what is root's."""
    os.chown(place, ALICE.uid, ALICE.gid)
    (place / "secret").mkdir(mode=0)
    ALICE.do(lambda: _closed_by(place, ["secret", "work"]))
    os.setxattr(place, "user.holdfast.mount.shut", b"0777 secret")
    covered_directory.release(str(place))
    assert stat.S_IMODE((place / "secret").stat().st_mode) == 0


def test_root_releases_what_an_ordinary_user_has_closed(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)
    ALICE.do(lambda: _closed_by(place))
    covered_directory.release(str(place))
    assert os.listdir(place) == []
    ALICE.do((place / "file").touch)


def _closed_by(place: Path, names: Sequence[str] = ("work",)) -> None:
    assert covered_directory.protect(str(place), ["work"], is_served=False).protection == CLOSED
    assert sorted(os.listdir(place)) == [*names]


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


def test_a_directory_that_is_not_there_has_nothing_to_release(workspace: Path) -> None:
    with pytest.raises(NotMountedError, match="there is no directory"):
        covered_directory.release(str(workspace / "none"))


def test_what_holdfast_has_not_done_is_left_alone(place: Path) -> None:
    """Gain: an administrator's directory with mode 000 is removed, and what chattr(1) protects is open."""
    (place / "secret").mkdir(mode=0)
    assert not covered_directory.release(str(place))
    assert stat.S_IMODE((place / "secret").stat().st_mode) == 0
    subprocess.run(["chattr", "+i", place], check=True)
    with pytest.raises(MountpointError, match="Holdfast has not made it so; to give it back: chattr -i"):
        covered_directory.release(str(place))
    assert not is_writable(place)
    covered_directory.protect(str(place), is_served=False)  # from now on it is a mountpoint
    assert covered_directory.release(str(place))
    assert is_writable(place)
    assert (place / "secret").is_dir()


@pytest.mark.promise("mountpoint-protected")
def test_what_the_package_has_made_immutable_takes_no_writes_while_it_is_marked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["chattr", "+i", place], check=True)
    mark, could_write = protection_marks.mark, []

    def marked(fd: int, mode: int) -> None:
        could_write.append(is_writable(place))
        mark(fd, mode)

    monkeypatch.setattr(protection_marks, "mark", marked)
    assert covered_directory.protect(str(place), is_served=False).protection == IMMUTABLE
    assert could_write == [False]
    assert kinds(place) == []
    assert not is_writable(place)
    assert covered_directory.release(str(place))
    assert is_writable(place)


def test_only_the_placeholders_that_holdfast_has_made_are_removed_and_the_mode_comes_back(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)
    place.chmod(0o775)

    def works() -> None:
        (place / "own").mkdir(mode=0)
        assert covered_directory.protect(str(place), ["own", "work"], is_served=False).protection == CLOSED
        assert covered_directory.protect(str(place), ["own", "work", "later"], is_served=False).protection == CLOSED
        assert sorted(os.listdir(place)) == ["later", "own", "work"]
        assert stat.S_IMODE(place.stat().st_mode) == 0o555
        assert covered_directory.release(str(place))
        assert os.listdir(place) == ["own"]
        assert stat.S_IMODE(place.stat().st_mode) == 0o775
        assert not covered_directory.release(str(place)), "once is enough"

    ALICE.do(works)


def test_a_placeholder_that_is_not_empty_is_named_and_left_until_it_is(place: Path) -> None:
    os.chown(place, ALICE.uid, ALICE.gid)
    ALICE.do(lambda: _closed_by(place))
    (place / "work/file").touch()  # root may
    refusal = f"{place} could not be released completely: {place}/work is not empty"
    with pytest.raises(MountpointError, match=refusal):
        covered_directory.release(str(place))
    assert (place / "work/file").exists()
    ALICE.do((place / "file").touch)
    (place / "work/file").unlink()
    assert covered_directory.release(str(place))
    assert os.listdir(place) == ["file"]


def test_a_mark_gives_nobody_more_than_the_right_to_write(place: Path) -> None:
    place.chmod(0o755)
    os.setxattr(place, "user.holdfast.mount.mountpoint", b"7020/../secret")
    (place / "secret").mkdir(mode=0o700)
    covered_directory.release(str(place))
    assert stat.S_IMODE(place.stat().st_mode) == 0o775
    assert (place / "secret").is_dir()
    os.setxattr(place, "user.holdfast.mount.mountpoint", b"no mode")
    assert not covered_directory.release(str(place))


def test_where_there_are_no_extended_attributes_placeholders_are_known_by_their_mode(workspace: Path) -> None:
    with mounted("ramfs", workspace / "ram") as ram:
        place = ram / "mount"
        place.mkdir()
        os.chown(place, ALICE.uid, ALICE.gid)
        ALICE.do(lambda: _closed_by(place))
        assert covered_directory.is_protected(str(place))
        ALICE.do(lambda: _releases(place))


def _releases(place: Path) -> None:
    assert covered_directory.release(str(place))
    assert os.listdir(place) == []
    assert is_writable(place)


@pytest.mark.parametrize("was_protected", [False, True])
def test_a_mount_that_fails_leaves_the_directory_as_it_was(place: Path, was_protected: bool) -> None:
    if was_protected:
        covered_directory.protect(str(place), is_served=False)
    with pytest.raises(ZeroDivisionError):
        _fails_to_mount(place, answers=False)
    assert is_writable(place) != was_protected


def test_a_mount_that_fails_leaves_a_cover_where_it_was(place: Path, no_flags: None) -> None:
    covered_directory.protect(str(place), is_served=False)
    with pytest.raises(ZeroDivisionError):
        _fails_to_mount(place, answers=False)
    assert kinds(place) == ["tmpfs"]
    assert not is_writable(place)


def test_of_two_daemons_that_start_at_once_one_may_mount(place: Path) -> None:
    with covered_directory.taken(str(place)) as let_others:
        with pytest.raises(MountpointBusyError, match="another daemon is about to mount there"), _taken(place):
            pass
        let_others()
        with _taken(place):
            pass


def _taken(place: Path) -> AbstractContextManager[object]:
    return covered_directory.taken(str(place))


def test_a_mount_that_has_answered_leaves_its_directory_protected(place: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _fails_to_mount(place, answers=True)
    assert not is_writable(place)


def _fails_to_mount(place: Path, *, answers: bool) -> None:
    with covered_directory.released_on_failure(str(place)) as keep:
        covered_directory.protect(str(place), is_served=False)
        if answers:
            keep()
        raise ZeroDivisionError
