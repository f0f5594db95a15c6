"""A new mount in the place of dead ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import MountpointError
from holdfast.mount import mount_calls, mounting, mountpoint
from tests.support.disks.mounts import unserved
from tests.support.users.privileges import needs_root

pytestmark = needs_root


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "mount"
    path.mkdir()
    yield path
    while mountpoint.stack_on(str(path)):
        mountpoint.detach(str(path))


def leave_dead_mount(place: Path) -> None:
    """Mount a Holdfast over whatever is there; its daemon is dead."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    made = mount_calls.make("fuse", mounting._options(device, allow_other=True), 0)
    mount_calls.place(made, str(place))
    os.close(made)
    os.close(device)


@pytest.mark.parametrize("can_beneath", [True, False], ids=["Linux 6.5", "Linux 5.4"])
@pytest.mark.parametrize("dead", [0, 1, 3])
def test_a_mount_takes_the_place_of_all_dead_ones(
    dead: int, can_beneath: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_beneath:
        monkeypatch.setattr(mount_calls, "place_beneath", lambda mount, path: False)
    for _ in range(dead):
        leave_dead_mount(place)
    before = {mount.number for mount in mountpoint.stack_on(str(place))}
    assert len(before) == dead
    device = mounting.mount(str(place), allow_other=True)
    assert device is not None
    (mount,) = mountpoint.stack_on(str(place))
    assert mount.number not in before
    os.close(device)


@pytest.mark.promise("mountpoint-protected")
def test_nobody_sees_the_directory_below_while_a_dead_mount_is_replaced(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def looked_at(path: str) -> None:
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            os.listdir(place)
        looks.append(path)
        detach(path)

    detach = mountpoint.detach
    monkeypatch.setattr(mountpoint, "detach", looked_at)
    with unserved(place, held=False):
        device = mounting.mount(str(place), allow_other=True)
        assert device is not None
        os.close(device)
        with pytest.raises(OSError, match=os.strerror(errno.ENOTCONN)):
            os.listdir(place)
    assert looks


def test_the_mount_is_the_one_that_libfuse_would_make(place: Path) -> None:
    device = mounting.mount(str(place), allow_other=True)
    assert device is not None
    os.close(device)
    line = next(line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {place} " in line)
    options = "rw,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,allow_other"
    assert line == f"holdfast {place} fuse.holdfast {options} 0 0"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_the_calls_are_not_to_be_had_libfuse_mounts(number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: str, options: object, attributes: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(mount_calls, "make", refused)
    assert mounting.mount(str(place), allow_other=True) is None


def test_where_a_mount_may_be_made_but_not_placed_libfuse_mounts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under some security modules."""

    def refused(mount: int, path: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(mount_calls, "place", refused)
    assert mounting.mount(str(place), allow_other=True) is None
    assert mountpoint.stack_on(str(place)) == []


def test_what_the_kernel_refuses_is_told(place: Path) -> None:
    place.rmdir()
    with pytest.raises(MountpointError, match=f"the kernel refused to mount on {place}: No such file or directory"):
        mounting.mount(str(place), allow_other=True)
