"""Mountpoints: what the kernel tells of them, and which ones are refused."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import MountpointError
from holdfast.mount import fuse_device, mountpoint
from holdfast.mount.mountpoint import Life
from tests.support.disks.mounts import mounted, unserved
from tests.support.users.privileges import as_nobody, needs_root

# a real one, with the lines of a container
MOUNTINFO = rb"""24 30 0:23 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
30 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 30 0:27 / /mnt/with\040space\011tab\012line\134back rw,relatime shared:1 master:2 propagate_from:3 - tmpfs none rw
32 30 0:41 / /mnt/holdfast rw,nosuid,nodev,relatime - fuse.holdfast holdfast rw,user_id=0,group_id=0,allow_other
33 30 0:42 /sub/dir /mnt/- rw - - - rw
34 30 0:43 / /mnt/holdfast rw - tmpfs none rw
"""


def escaped(path: bytes) -> bytes:
    """Escape a path as the kernel does (seq_path with space, tab, newline and backslash)."""
    return b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes([byte]) for byte in path)


def test_mountinfo_is_read_line_by_line() -> None:
    found = mountpoint.parsed(MOUNTINFO)
    assert [(mount.mountpoint, mount.file_system) for mount in found] == [
        ("/proc", "proc"),
        ("/", "ext4"),
        ("/mnt/with space\ttab\nline\\back", "tmpfs"),
        ("/mnt/holdfast", "fuse.holdfast"),
        ("/mnt/-", "-"),
        ("/mnt/holdfast", "tmpfs"),
    ]
    assert found[1].device == os.makedev(254, 0)


@needs_root
def test_an_ordinary_user_is_told_what_it_lacks_to_mount(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, place = workspace / "fuse.conf", workspace / "place"
    monkeypatch.setattr(fuse_device, "_SETTINGS", settings)
    place.mkdir(mode=0o755)

    def check(text: str, *, allow_other: bool) -> None:
        assert text in fuse_device.what_mounting_takes(str(place), allow_other=allow_other)

    as_nobody(partial(check, "on a directory that it may write to; choose one of its own", allow_other=False))
    place.chmod(0o777)
    as_nobody(partial(check, "fusermount3", allow_other=False))
    as_nobody(partial(check, "set mount.allow_other = false", allow_other=True))
    settings.write_text("# user_allow_other\n user_allow_other \n")
    as_nobody(partial(check, "fusermount3", allow_other=True))
    check("CAP_SYS_ADMIN", allow_other=True)


def test_an_ordinary_user_unmounts_by_a_symbolic_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gain: fusermount3 knows a mount by its path without links alone."""
    place, link, helper = tmp_path / "place", tmp_path / "link", tmp_path / "fusermount3"
    place.mkdir()
    link.symlink_to(place)
    helper.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: 60001)
    mountpoint.unmount(str(link))
    assert (tmp_path / "asked").read_text() == f"-u {place}\n"


@given(st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name))
def test_any_path_is_read_back_as_it_was_escaped(name: bytes) -> None:
    line = b"31 30 0:27 / /%s rw,relatime - tmpfs none rw\n" % escaped(name)
    (mount,) = mountpoint.parsed(line)
    assert os.fsencode(mount.mountpoint) == b"/" + name
    assert mount.file_system == "tmpfs"


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_a_backslash_that_looks_like_an_escape_stays_one(name: bytes) -> None:
    path = rb"/\040\134040" + name
    (mount,) = mountpoint.parsed(b"31 30 0:27 / %s rw - tmpfs none rw" % escaped(path))
    assert os.fsencode(mount.mountpoint) == path


def test_the_machines_mounts_can_be_read() -> None:
    assert "/" in {mount.mountpoint for mount in mountpoint.mounts()}
    root = mountpoint.mount_at("/")
    assert root is not None
    assert root.device == os.stat("/").st_dev


def test_where_nothing_is_mounted_there_is_no_mount(tmp_path: Path) -> None:
    assert mountpoint.mount_at(str(tmp_path)) is None
    assert mountpoint.mount_at(str(tmp_path / "missing")) is None


@needs_root
@pytest.mark.parametrize(
    "name", ["plain", "with space", "tab\there", "line\nbreak", "back\\040slash", "\x0b\x1c\x85\u2028", "\r"]
)
def test_a_mount_is_found_whatever_its_name(tmp_path: Path, name: str) -> None:
    with mounted("tmpfs", tmp_path / name) as path:
        mount = mountpoint.mount_at(str(path))
        assert mount is not None
        assert (mount.mountpoint, mount.file_system, mount.device) == (str(path), "tmpfs", path.stat().st_dev)
    assert mountpoint.mount_at(str(path)) is None


@needs_root
def test_of_two_mounts_in_one_place_the_topmost_counts(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "mount") as path, mounted("ramfs", path):
        mount = mountpoint.mount_at(str(path))
        assert mount is not None
        assert mount.file_system == "ramfs"


@needs_root
def test_a_mount_is_found_along_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("mount")
    with mounted("tmpfs", tmp_path / "mount"):
        assert mountpoint.mount_at(str(tmp_path / "link")) is not None


# --- prepare ----------------------------------------------------------------------------------------------------------


def test_a_free_directory_is_fit_to_mount_on(tmp_path: Path) -> None:
    assert mountpoint.prepare(str(tmp_path)) == str(tmp_path)


def test_links_are_resolved_before_the_mount(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    assert mountpoint.prepare(str(tmp_path / "link")) == str(tmp_path / "directory")


def test_no_mountpoint_at_all() -> None:
    with pytest.raises(MountpointError, match=r"no mountpoint: give one .* or set mount\.mountpoint"):
        mountpoint.prepare("")


def test_a_missing_mountpoint(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(MountpointError, match=f"{missing} does not exist; create it: mkdir -p {missing}"):
        mountpoint.prepare(str(missing))
    assert not missing.exists()


def test_a_mount_that_waits_for_a_daemon_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [Life.ALIVE, Life.SILENT, Life.DEAD]
    detached: list[str] = []
    mount = mountpoint.Mount("/mnt", mountpoint.FILE_SYSTEM, 1, "holdfast", 2, 1)
    monkeypatch.setattr(mountpoint, "mount_at", lambda _: None if detached else mount)
    monkeypatch.setattr(mountpoint, "life", lambda _: lives.pop(0))
    monkeypatch.setattr(mountpoint, "detach", lambda path: detached.append(f"{path} of {len(lives)}"))
    monkeypatch.setattr(mountpoint, "_LOOK_SECONDS", 0)
    mountpoint.detach_when_dead("/mnt")
    assert detached == ["/mnt of 0"]


def test_a_mount_that_replaces_a_dead_one_is_not_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    dead, new = (mountpoint.Mount("/mnt", mountpoint.FILE_SYSTEM, number, "holdfast", number, 1) for number in (2, 3))
    there = [dead, new, None]
    monkeypatch.setattr(mountpoint, "mount_at", lambda _: there.pop(0))
    monkeypatch.setattr(mountpoint, "life", lambda _: Life.DEAD)
    monkeypatch.setattr(mountpoint, "detach", lambda path: pytest.fail(f"{path} was taken away"))
    monkeypatch.setattr(mountpoint, "_LOOK_SECONDS", 0)
    mountpoint.detach_when_dead("/mnt")
    assert not there


def test_a_missing_mountpoint_is_made_when_that_is_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "mnt"
    mountpoint.create(str(place))
    (place / "file").touch()
    mountpoint.create(str(place))
    assert os.listdir(place) == ["file"]
    with pytest.raises(MountpointError, match=f"{tmp_path}/none/mnt can't be made: No such file or directory"):
        mountpoint.create(f"{tmp_path}/none/mnt")


def test_a_mountpoint_that_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(MountpointError, match=f"{file} is not a directory"):
        mountpoint.prepare(str(file))


def test_a_mountpoint_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(MountpointError, match="can't be used: Too many levels of symbolic links"):
        mountpoint.prepare(str(tmp_path / "loop"))


@needs_root
def test_a_mountpoint_that_may_not_be_entered(workspace: Path) -> None:
    closed = workspace / "closed"
    closed.mkdir(mode=0o700)

    def prepare() -> None:
        with pytest.raises(MountpointError, match="can't be used: Permission denied"):
            mountpoint.prepare(str(closed))

    as_nobody(prepare)


@needs_root
def test_another_file_system_that_is_mounted_there_stays(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "mount") as path:
        with pytest.raises(MountpointError, match=f"{path} is in use: tmpfs is mounted there"):
            mountpoint.prepare(str(path))
        assert mountpoint.mount_at(str(path)) is not None


@needs_root
def test_a_holdfast_that_lives_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted("tmpfs", tmp_path / "mount") as path:
        monkeypatch.setattr(mountpoint, "FILE_SYSTEM", "tmpfs")
        with pytest.raises(MountpointError, match=f"a running Holdfast is mounted there; 'holdfast umount {path}' ends it"):
            mountpoint.prepare(str(path))


@needs_root
def test_all_that_dead_daemons_left_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountpoint, "FILE_SYSTEM", "tmpfs")
    monkeypatch.setattr(mountpoint, "life", lambda path: mountpoint.Life.DEAD)
    path = tmp_path / "mount"
    path.mkdir()
    for _ in range(2):
        subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True)
    mountpoint.clear(mountpoint.prepare(str(path)))
    assert mountpoint.mount_at(str(path)) is None


def test_a_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"mount \xff")
    path.mkdir()
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        with pytest.raises(MountpointError, match="is not UTF-8; choose another directory"):
            mountpoint.check(str(each))


# --- unmounting -------------------------------------------------------------------------------------------------------


@needs_root
def test_a_mount_in_use_stays_and_its_users_are_named(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "mount") as path:
        with (path / "file").open("w"), pytest.raises(MountpointError) as caught:
            mountpoint.unmount(str(path))
        comm = Path("/proc/self/comm").read_text().strip()
        assert f"{path} is in use by {os.getpid()} ({comm})" in str(caught.value)
        assert mountpoint.is_alive(str(path))
        subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True)
        mountpoint.unmount(str(path))
        assert mountpoint.mount_at(str(path)) is not None


@needs_root
def test_what_is_mounted_in_a_mount_is_named_as_its_user(tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path / "mount") as path, mounted("tmpfs", path / "inner"):
        with pytest.raises(MountpointError, match=f"{path} is in use; mounted in it: {path}/inner; end that first, or"):
            mountpoint.unmount(str(path))
        assert mountpoint.mount_at(str(path)) is not None


@needs_root
def test_a_detached_mount_is_gone_although_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "mount"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(path)], check=True)
    with (path / "file").open("w+") as file:
        mountpoint.detach(str(path))
        assert mountpoint.mount_at(str(path)) is None
        file.write("still here")


@needs_root
def test_unmounting_where_nothing_is_mounted(tmp_path: Path) -> None:
    for unmount in (mountpoint.unmount, mountpoint.detach):
        with pytest.raises(MountpointError, match=f"nothing is mounted at {tmp_path}"):
            unmount(str(tmp_path))
    with pytest.raises(MountpointError, match=r"can't unmount .*: No such file or directory"):
        mountpoint.unmount(str(tmp_path / "missing"))


def test_a_directory_of_the_machine_is_alive(tmp_path: Path) -> None:
    assert mountpoint.is_alive(str(tmp_path))


@needs_root
def test_a_path_is_resolved_without_a_question_to_what_is_mounted_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("mount")
    with unserved(tmp_path / "mount") as path:
        for name in ("mount", "link"):
            assert mountpoint.real_path(str(tmp_path / name)) == str(path)
            found = mountpoint.mount_at(str(tmp_path / name))
            assert found is not None
            assert found.mountpoint == str(path)


@needs_root
def test_a_mount_that_is_held_but_not_served_is_silent_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unserved(tmp_path / "mount") as path, monkeypatch.context() as soon:
        soon.setattr(mountpoint, "_ANSWER_SECONDS", 0.2)
        assert mountpoint.life(str(path)) is mountpoint.Life.SILENT
        with pytest.raises(MountpointError, match="started again by itself; 'holdfast umount --lazy"):
            mountpoint.prepare(str(path))
    assert mountpoint.life(str(path)) is mountpoint.Life.ALIVE


@needs_root
def test_a_mount_that_nobody_holds_is_dead(tmp_path: Path) -> None:
    with unserved(tmp_path / "mount", held=False) as path:
        assert mountpoint.life(str(path)) is mountpoint.Life.DEAD


def test_what_does_not_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(MountpointError, match="does not answer: No such file or directory"):
        mountpoint.is_alive(str(tmp_path / "missing"))
