"""What becomes of a mount that an earlier daemon has left: whose it is, and whether anybody still wants it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from holdfast.errors import MountpointError, StoreInUseError, TakeoverError, UnmountedError
from holdfast.mount import mountpoint
from holdfast.session import Identity, SessionArea
from holdfast.session.handover import Handover
from holdfast.supervision.service_manager import ServiceManager
from tests.support.disks.mounts import unserved
from tests.support.users.privileges import needs_root

pytestmark = needs_root
UNIT = "holdfastd.service"
Systemd = Callable[[int], ServiceManager]


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Identity]:
    """A mount without a daemon, whose session has been kept."""
    area = SessionArea(tmp_path / "session")
    area.begin()
    with unserved(tmp_path / "mount") as path:
        mount = mountpoint.mounted_on(str(path))
        assert mount is not None
        identity = Identity(mountpoint=str(path), asked_for=str(path), device=mount.device, store="store-1")
        area.sign(identity)
        area.release()
        yield identity


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    """systemd that has started the unit again so many times, by itself."""

    def started(times: int) -> ServiceManager:
        command = tmp_path / "systemctl"
        command.write_text(f"#!/bin/sh\necho {times}\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return ServiceManager({}, UNIT)

    return started


def handover(tmp_path: Path, manager: ServiceManager, identity: Identity, *, gave_back: bool) -> Handover:
    descriptors = {f"holdfast-{identity.device}": os.open("/dev/null", os.O_RDONLY)} if gave_back else {}
    return Handover(SessionArea(tmp_path / "session"), manager, descriptors)


def session(tmp_path: Path) -> Identity | None:
    return SessionArea(tmp_path / "session").read()


def test_who_has_the_descriptor_takes_the_mount_over(left: Identity, tmp_path: Path) -> None:
    next_one = handover(tmp_path, ServiceManager({}), left, gave_back=True)
    found = next_one.find()
    assert found is not None
    assert found.identity == left
    os.close(found.device)


def test_a_mount_that_somebody_else_holds_is_not_this_daemons(
    left: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mountpoint, "_ANSWER_SECONDS", 0.2)
    with pytest.raises(MountpointError, match="started again by itself"):
        handover(tmp_path, ServiceManager({}), left, gave_back=False).find()
    assert session(tmp_path) == left


def test_the_session_of_a_daemon_that_lives_is_left_alone(left: Identity, tmp_path: Path) -> None:
    living = SessionArea(tmp_path / "session")
    living.claim()
    with pytest.raises(StoreInUseError):
        handover(tmp_path, ServiceManager({}), left, gave_back=False).find()
    assert session(tmp_path) == left
    living.release()


@pytest.mark.parametrize("gave_back", [False, True])
@pytest.mark.parametrize("restarts", [0, 2])
def test_systemd_starts_no_fresh_mount_by_itself_where_one_was_taken_away(
    restarts: int, gave_back: bool, left: Identity, tmp_path: Path, systemd: Systemd
) -> None:
    """Without files open there it has closed the descriptor by itself: nothing is behind it any more."""
    mountpoint.detach(left.mountpoint)
    next_one = handover(tmp_path, systemd(restarts), left, gave_back=gave_back)
    with pytest.raises(TakeoverError, match="no longer mounted"):
        next_one.find()
    if restarts:
        with pytest.raises(UnmountedError, match="was unmounted while no daemon ran"):
            next_one.check_wanted()
        assert not (tmp_path / "session").exists()
    else:
        next_one.check_wanted()
        next_one.abandon()


@pytest.mark.parametrize("gave_back", [False, True])
def test_a_supervisor_that_gave_the_descriptor_back_has_started_the_daemon_again(
    gave_back: bool, left: Identity, tmp_path: Path
) -> None:
    mountpoint.detach(left.mountpoint)
    next_one = handover(tmp_path, ServiceManager({}), left, gave_back=gave_back)
    with pytest.raises(TakeoverError, match="no longer mounted"):
        next_one.find()
    with pytest.raises(UnmountedError) if gave_back else nullcontext():
        next_one.check_wanted()


def test_what_was_given_up_is_not_taken_for_unmounted_when_the_start_is_tried_again(
    left: Identity, tmp_path: Path, systemd: Systemd
) -> None:
    """As when the mount is to be elsewhere now, and the store is still in use."""
    first = handover(tmp_path, systemd(1), left, gave_back=True)
    inheritance = first.find()
    assert inheritance is not None
    first.check_wanted()
    inheritance.clear_away("/elsewhere")
    first.abandon()
    first.area.release()
    assert handover(tmp_path, systemd(2), left, gave_back=False).find() is None
