"""The protocol of systemd, spoken to a socket and a systemctl of the test's own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.supervision.service_manager import NOT_CONFIGURED_STATUS, ServiceManager, received

UNIT = "holdfastd.service"
UNIT_FILE = Path(__file__).parents[3] / "systemd" / UNIT


@pytest.fixture
def manager_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(tmp_path / "notify"))
        yield listener


@pytest.fixture
def environment(tmp_path: Path, manager_socket: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify")}


def systemctl_says(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "systemctl"
    command.write_text(f"#!/bin/sh\necho '{words}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_a_descriptor_is_held_under_a_name(environment: dict[str, str], manager_socket: socket.socket) -> None:
    reader, writer = os.pipe()
    assert ServiceManager(environment).hold("holdfast-7", writer)
    os.close(writer)
    message, descriptors, _, _ = socket.recv_fds(manager_socket, 100, 2)
    assert message == b"FDSTORE=1\nFDNAME=holdfast-7"
    os.write(descriptors[0], b"x")
    assert os.read(reader, 1) == b"x"
    for fd in (reader, *descriptors):
        os.close(fd)


def test_the_watchdog_is_told_that_all_is_well(environment: dict[str, str], manager_socket: socket.socket) -> None:
    assert ServiceManager(environment).watchdog_seconds is None
    watched = {**environment, "WATCHDOG_USEC": "30000000"}
    assert ServiceManager({**watched, "WATCHDOG_PID": str(os.getpid() + 1)}).watchdog_seconds is None
    for pid in ({}, {"WATCHDOG_PID": str(os.getpid())}):
        manager = ServiceManager({**watched, **pid})
        assert manager.watchdog_seconds == 30
    manager.tell_alive()
    manager.end_watch()
    assert [manager_socket.recv(100) for _ in range(2)] == [b"WATCHDOG=1", b"WATCHDOG_USEC=0"]


def test_a_manager_that_takes_no_messages_does_not_stop_the_daemon(
    environment: dict[str, str], manager_socket: socket.socket
) -> None:
    for _ in range(10_000):  # far more than the queue of a socket holds
        ServiceManager(environment).tell_alive()


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_nobody_holds_where_nobody_listens(address: str) -> None:
    assert not ServiceManager({"NOTIFY_SOCKET": address}).hold("holdfast-7", 0)
    assert not ServiceManager({"NOTIFY_SOCKET": address}).is_there()


def test_a_manager_is_there_until_it_has_ended(environment: dict[str, str], manager_socket: socket.socket) -> None:
    assert ServiceManager(environment).is_there()
    manager_socket.close()
    assert not ServiceManager(environment).is_there()


@pytest.mark.parametrize(("room", "holds"), [("0", False), ("2", True), ("", True)])
def test_a_unit_without_room_holds_nothing(
    room: str,
    holds: bool,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    systemctl_says(room, tmp_path, monkeypatch)
    assert ServiceManager(environment, UNIT).hold("holdfast-7", 0) is holds


@pytest.mark.parametrize(
    ("jobs", "restarting"),
    [
        (f"71 {UNIT} restart running", True),
        (f"71 {UNIT} stop running", False),
        ("71 other.service restart waiting", False),
        ("", False),
    ],
)
def test_only_a_restart_of_this_unit_is_half_a_restart(
    jobs: str, restarting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl_says(jobs, tmp_path, monkeypatch)
    assert ServiceManager({}, UNIT).is_restarting() is restarting
    assert not ServiceManager({}).is_restarting()


@pytest.mark.parametrize(("restarts", "again"), [("0", False), ("3", True), ("", False)])
def test_systemd_knows_what_it_starts_again_by_itself(
    restarts: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl_says(restarts, tmp_path, monkeypatch)
    for gave_back in (False, True):
        assert ServiceManager({}, UNIT).starts_again(gave_back=gave_back) is again
        assert ServiceManager({}).starts_again(gave_back=gave_back) is gave_back


def test_without_systemctl_it_is_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not ServiceManager({}, UNIT).is_restarting()
    assert not ServiceManager({}, UNIT).starts_again(gave_back=True)


def test_descriptors_of_another_process_are_not_received() -> None:
    environment = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "holdfast-7", "OTHER": "stays"}
    assert received(environment) == {}
    assert environment == {"OTHER": "stays"}


def test_a_unit_that_is_not_configured_says_what_to_do_and_is_not_started_again(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("# nothing yet\n")
    command = [sys.executable, "-m", "holdfast.daemon", "--config", str(file), "--unit", UNIT]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == NOT_CONFIGURED_STATUS
    assert ended.stderr == (
        f"holdfastd: not configured yet: set mount.mountpoint and the stores' urls in {file}, then: systemctl start {UNIT}\n"
    )
    assert re.findall(r"^RestartPreventExitStatus=(.+)$", UNIT_FILE.read_text(), re.MULTILINE) == [str(ended.returncode)]
