"""Whether data can go past the daemon, and in which words it is told why not."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import TakeoverError
from holdfast.kernel import (
    Connection,
    Fallocation,
    InitFlag,
    Machine,
    Opcode,
    OpenFlag,
    forecast,
    takeover_forecast,
)
from holdfast.kernel.connection import Exchange
from holdfast.kernel.native_module import NoNativeModule, load
from holdfast.kernel.probe import Mounted, Outcome, kernel_version, outcome, takeover_outcome

ROOT = 0x000001FFFFFFFFFF
FIT = Machine((6, 9), ROOT, "")
AGREED = InitFlag.PASSTHROUGH
OFFERED = AGREED | InitFlag.RESEND


# --- before the mount -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (FIT, "passthrough"),
        (Machine((7, 0), ROOT, ""), "passthrough"),
        (Machine((6, 10), 1 << 21, ""), "passthrough"),
        (Machine((6, 1), ROOT, ""), "daemon-io: kernel 6.1 < 6.9"),
        (Machine((5, 15), ROOT, ""), "daemon-io: kernel 5.15 < 6.9"),
        (Machine((6, 9), ROOT & ~(1 << 21), ""), "daemon-io: no CAP_SYS_ADMIN"),
        (Machine((6, 9), ROOT, "No module named 'x'"), "daemon-io: the C module is not there (No module named 'x')"),
    ],
)
def test_the_reason_is_told(machine: Machine, told: str) -> None:
    assert forecast(machine, wanted=True) == told


def test_a_setting_switches_it_off_whatever_the_machine_can() -> None:
    for machine in (FIT, Machine((5, 4), 0, "gone")):
        assert forecast(machine, wanted=False) == "daemon-io: switched off by setting"


def test_taking_over_needs_no_rights_but_the_kernel() -> None:
    assert takeover_forecast(Machine((6, 9), 0, "")) == "takeover"
    assert takeover_forecast(Machine((6, 8), ROOT, "")) == "no takeover: kernel 6.8 < 6.9"
    assert takeover_forecast(Machine((6, 9), 0, "why")) == "no takeover: the C module is not there (why)"


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-13-amd64", (6, 1)), ("6.18.44-fc", (6, 18)), ("5.15.0-1.el9", (5, 15)), ("7.0", (7, 0)), ("odd", (0, 0))],
)
def test_releases_are_read(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


def test_this_machine_has_facts() -> None:
    machine = Machine.this()
    assert machine.kernel > (4, 0)
    assert (machine.capabilities >> 21 & 1 == 1) == (os.geteuid() == 0)


def test_the_module_is_built_wherever_the_tests_run() -> None:
    _, missing = load()
    assert missing == ""


# --- after it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Outcome(Mounted.FULL, 0, "3.14.0", OFFERED, AGREED, 0), ""),
        (Outcome(Mounted.FULL, 0, "3.14.0", InitFlag.NONE, None, 0), ""),
        (Outcome(Mounted.NONE, 0, "", InitFlag.NONE, None, 0), "pyfuse3 does not call through the C module"),
        (Outcome(Mounted.PLAIN, errno.ENOSYS, "3.10.3", InitFlag.NONE, None, 0), "libfuse 3.10.3 < 3.13"),
        (Outcome(Mounted.PLAIN, errno.ENOSYS, "", InitFlag.NONE, None, 0), "libfuse ? < 3.13"),
        (Outcome(Mounted.FAILED, errno.EINVAL, "3.14.0", InitFlag.NONE, None, 0), "libfuse 3.14.0: Invalid argument"),
        (
            Outcome(Mounted.FULL, 0, "3.14.0", InitFlag.RESEND, InitFlag.READDIRPLUS_WHEN_USED, 0),
            "the kernel was built without FUSE_PASSTHROUGH",
        ),
        (Outcome(Mounted.FULL, 0, "3.14.0", OFFERED, InitFlag.READDIRPLUS_WHEN_USED, 0), "the mount was made without it"),
    ],
)
def test_what_came_of_it_is_told(found: Outcome, told: str) -> None:
    assert outcome(found) == told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Outcome(Mounted.FULL, 0, "3.14.0", OFFERED, AGREED, 0), ""),
        (
            Outcome(Mounted.FULL, 0, "3.14.0", OFFERED, AGREED, errno.ENOSPC),
            "its start could not be kept: No space left on device",
        ),
        (Outcome(Mounted.FULL, 0, "3.14.0", AGREED, AGREED, 0), "the kernel does not send requests again"),
        (Outcome(Mounted.PLAIN, errno.ENOSYS, "3.12.0", AGREED, None, 0), "libfuse 3.12.0 < 3.13"),
    ],
)
def test_whether_another_daemon_can_take_over_is_told(found: Outcome, told: str) -> None:
    assert takeover_outcome(found) == told


# --- the connection, without a kernel ---------------------------------------------------------------------------------


class Scripted(NoNativeModule):
    """NativeModule over any descriptor in place of ``/dev/fuse``."""

    def __init__(self, fd: int, agreed: int = AGREED) -> None:
        self.fd = fd
        self.agreed = agreed
        self.asked = 0
        self.configured: tuple[object, ...] = ()
        self.answers: list[tuple[int, int, int]] = []

    def configure(self, add: int, keep_path: bytes, resend: bool, request: bytes, reply: bytes, /) -> None:
        if request == b"wrong":
            raise ValueError("this is no exchange that was kept")
        self.configured = (add, keep_path, resend)

    def session(self) -> tuple[int, int, int, str, int, int, int]:
        self.asked += 1
        return Mounted.FULL, self.fd, 0, "3.14.0", OFFERED, self.agreed, 0

    def answer(self, unique: int, backing_id: int, flags: int, /) -> None:
        self.answers.append((unique, backing_id, flags))

    def counts(self) -> tuple[tuple[int, ...], int, int]:
        counts = [0] * 64
        counts[Opcode.OPEN] = 3
        return tuple(counts), 3, 0


@pytest.fixture
def native(tmp_path: Path) -> Iterator[Scripted]:
    fd = os.open(tmp_path / "device", os.O_RDWR | os.O_CREAT)
    yield Scripted(fd)
    os.close(fd)


def test_passthrough_is_asked_for_with_what_makes_it_cheap(native: Scripted) -> None:
    Connection(FIT, passthrough=True, native=native).prepare(Path("/nowhere/init"))
    always = InitFlag.DROP_PRIVILEGES | InitFlag.EXPLICIT_INVALIDATE | InitFlag.PARALLEL_DIRECTORY_REQUESTS
    assert native.configured == (always | InitFlag.PASSTHROUGH, b"/nowhere/init", False)
    Connection(FIT, passthrough=False, native=native).prepare(None)
    assert native.configured == (always, b"", False)


def test_a_new_mount_begins_without_what_an_older_one_kept(native: Scripted, tmp_path: Path) -> None:
    kept = tmp_path / "init"
    kept.write_bytes(b"old")
    Connection(FIT, passthrough=True, native=native).prepare(kept)
    assert not kept.exists()
    Connection(FIT, passthrough=True, native=native).prepare(kept, takeover=True)
    assert native.configured[-1] is True


def test_a_refusal_that_holds_for_all_files_is_remembered(native: Scripted) -> None:
    connection = Connection(FIT, passthrough=True, native=native)
    assert connection.register(2, native.fd) is None
    connection.attach()
    assert connection.mode == "passthrough"
    assert connection.register(2, native.fd) is None
    assert connection.mode == "daemon-io: the kernel knows no backing files"
    connection.close()
    assert connection.device == -1


def test_without_the_module_a_mount_is_pyfuse3s_alone() -> None:
    connection = Connection(Machine((6, 9), ROOT, "why"), passthrough=True, native=NoNativeModule())
    connection.prepare(Path("/nowhere/init"))
    connection.attach()
    connection.answer(connection.request(), None, OpenFlag.NO_FLUSH)
    assert (connection.device, connection.register(2, 0), connection.requests()) == (-1, None, {})
    assert connection.mode == "daemon-io: the C module is not there (why)"
    with pytest.raises(TakeoverError, match="no takeover: the C module is not there"):
        connection.prepare(Path("/nowhere/init"), takeover=True)


def test_an_answer_that_says_nothing_is_not_given(native: Scripted) -> None:
    connection = Connection(FIT, passthrough=True, native=native)
    connection.answer(2, None)
    connection.answer(4, None, OpenFlag.CACHE_DIRECTORY)
    connection.answer(6, 1, OpenFlag.NO_FLUSH)
    assert native.answers == [(4, 0, 8), (6, 1, 32)]
    assert connection.requests() == {Opcode.OPEN: 3}


def test_what_was_agreed_on_is_asked_for_until_it_is_known_and_not_with_each_write(native: Scripted) -> None:
    native.agreed = 0
    connection = Connection(FIT, passthrough=True, native=native)
    assert not connection.tells_privileges
    native.agreed = AGREED | InitFlag.DROP_PRIVILEGES
    assert connection.tells_privileges
    asked = native.asked
    assert all(connection.tells_privileges for _ in range(10))
    assert native.asked == asked


def test_a_resent_request_is_told_by_its_number() -> None:
    assert not Connection.is_resent(2)
    assert Connection.is_resent(2 | 1 << 63)
    assert Connection.number(2 | 1 << 63) == Connection.number(2) == 2


# --- what is kept of the start of a mount -----------------------------------------------------------------------------

REQUEST = struct.pack("=IIQQIIIHH", 104, 26, 2, 0, 0, 0, 0, 0, 0) + struct.pack("=IIIII44x", 7, 44, 131072, 1 << 30, 0xA0)
REPLY = struct.pack("=IiQ", 80, 0, 2) + struct.pack(
    "=IIIIHHIIHHII24x", 7, 31, 131072, 1 << 30 | 1, 12, 9, 4096, 1, 0, 0, 0x20, 1
)
KEPT = b"HFINIT1\n" + struct.pack("=II", len(REQUEST), len(REPLY)) + REQUEST + REPLY


def test_the_kept_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "init").write_bytes(KEPT)
    assert Exchange.read(tmp_path / "init") == Exchange(REQUEST, REPLY)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is cut short"),
        (KEPT[:-1], "is cut short"),
        (KEPT + b"x", "is cut short"),
        (b"HFINIT9\n" + KEPT[8:], "was not kept by this version"),
    ],
)
def test_what_was_not_kept_whole_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "init").write_bytes(data)
    with pytest.raises(TakeoverError, match=told):
        Exchange.read(tmp_path / "init")


def test_where_nothing_was_kept_there_is_nothing_to_replay(tmp_path: Path) -> None:
    assert Exchange.read(tmp_path / "init") is None
    with pytest.raises(TakeoverError, match=r"can't be read from .*: Is a directory"):
        Exchange.read(tmp_path)


@pytest.mark.parametrize(
    ("request_", "reply"),
    [(REQUEST[:50], REPLY), (REQUEST + b"x", REPLY), (b"\0" * 104, REPLY), (b"\0" * 4096, REPLY)],
)
def test_the_module_takes_no_exchange_that_can_not_be_one(tmp_path: Path, request_: bytes, reply: bytes) -> None:
    kept = tmp_path / "init"
    kept.write_bytes(b"HFINIT1\n" + struct.pack("=II", len(request_), len(reply)) + request_ + reply)
    with pytest.raises(TakeoverError, match="init: this is no exchange that was kept"):
        Connection(FIT, passthrough=True).prepare(kept, takeover=True)


# --- fallocate --------------------------------------------------------------------------------------------------------


def test_an_attribute_with_a_name_is_no_fallocation() -> None:
    value = struct.pack("=QQQI4x", 7, 4096, 8192, 1)
    assert Fallocation.of(b"user.x", value) is None
    assert Fallocation.of(b"", value) == Fallocation(handle=7, offset=4096, length_bytes=8192, mode=1)


def test_a_fallocation_is_carried_out_or_says_why_not(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        Fallocation(0, 0, 5000, 0).apply(file.fileno())
        assert os.fstat(file.fileno()).st_size == 5000
        with pytest.raises(OSError, match="Invalid argument"):
            Fallocation(0, 0, 0, 0).apply(file.fileno())
