"""The systemd units: the daemon does all of its work with the rights that the unit leaves it, and with no others."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.kernel.probe import Machine, forecast
from holdfast.process.capabilities import NEEDED
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.children import children_of
from tests.support.users.privileges import ALICE, MAY_NET_RAW

_UNITS = Path(__file__).parents[2] / "systemd"
_MOST_EXPOSED = {"holdfastd": 5.3, "holdfast-sweep": 1.9}
"""``systemd-analyze security``, of 10: before, these were 9.3 and 9.4."""


def capabilities() -> list[str]:
    """Return the capabilities that the daemon's unit allows, as setpriv(1) writes them."""
    allowed = re.search(r"^CapabilityBoundingSet=(.+)$", (_UNITS / "holdfastd.service").read_text(), re.MULTILINE)
    assert allowed is not None
    return [name.removeprefix("CAP_").lower() for name in allowed[1].split()]


def statuses_of_threads(pid: int) -> list[str]:
    """Return what the kernel says of each thread of a process, of those that do not end meanwhile."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found.append((thread / "status").read_text())
    return found


@pytest.fixture
def confined(make_node: NodeFactory) -> Node:
    """A node, under a supervisor, whose daemon has the rights that the unit leaves it."""
    node = make_node()
    node.supervised = True
    node.prefix = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{','.join(f'+{name}' for name in capabilities())}"]
    return node.start()


def test_the_daemon_has_no_rights_but_those_of_the_unit(confined: Node) -> None:
    """A fault in the daemon would give more: its modules, its clock, its network, its users."""
    bounding = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path(f"/proc/{confined.pid}/status").read_text(), re.MULTILINE)
    assert bounding is not None
    assert int(bounding[1], 16).bit_count() == len(capabilities())


def test_the_daemon_keeps_no_more_when_it_is_mounted_by_hand(make_node: NodeFactory) -> None:
    """A fault in a daemon of 'holdfast mount', or in a program that it starts, would give all of root's rights."""
    assert sorted(name.removeprefix("CAP_").lower() for name in NEEDED) == sorted(capabilities())
    node = make_node(mount__passthrough=True)
    node.supervised = True
    node.start()
    (node.work / "driver_1").mkdir()
    (node.work / "driver_1/tmp/file").write_bytes(b"kept")
    for _ in range(2):
        for pid in (node.pid, *children_of(node.pid)):
            for status in statuses_of_threads(pid):
                held = dict(re.findall(r"^(Cap\w+):\s*([0-9a-f]+)$", status, re.MULTILINE))
                for kind in ("CapPrm", "CapEff", "CapBnd"):
                    assert int(held[kind], 16) & ~sum(1 << number for number in NEEDED.values()) == 0
                assert int(held["CapInh"], 16) == int(held["CapAmb"], 16) == 0
        node.kill_daemon()
        assert (node.work / "driver_1/tmp/file").read_bytes() == b"kept"
    assert node.status().takeover == "takeover"
    assert node.status().data_mode == forecast(Machine.this(), wanted=True)


def test_all_work_is_done_with_the_rights_of_the_unit(confined: Node, make_node: NodeFactory) -> None:
    confined.checkpoints.chmod(0o777)
    home = confined.work / "alice_1"

    def works() -> None:
        home.mkdir()
        (home / "rocksdb/1.sst").write_bytes(b"table")
        os.link(home / "rocksdb/1.sst", home / "localState/1.sst")
        os.mkfifo(home / "tmp/pipe", 0o600)
        os.setxattr(home / "localState/1.sst", "user.note", b"mine")
        (confined.checkpoints / "state").write_bytes(b"state")
        (confined.checkpoints / "state").rename(confined.checkpoints / "final")
        (home / "tmp/private").touch(0o600)

    ALICE.do(works)
    private = home / "tmp/private"
    assert private.stat().st_uid == ALICE.uid
    assert private.read_bytes() == b""
    os.chown(private, 0, 0)
    private.chmod(0o4755)
    assert stat.S_IMODE(private.stat().st_mode) == 0o4755
    os.setxattr(private, "security.capability", MAY_NET_RAW)
    os.mknod(home / "tmp/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert confined.status().data_mode == make_node("b").start().status().data_mode


def test_a_mount_is_taken_over_with_the_rights_of_the_unit(confined: Node) -> None:
    before = confined.mountpoint.stat().st_dev
    (confined.work / "driver_1").mkdir()
    with (confined.work / "driver_1/tmp/open").open("w+b", buffering=0) as file:
        file.write(b"before, ")
        confined.kill_daemon()
        file.write(b"after")
        file.seek(0)
        assert file.read() == b"before, after"
    assert confined.mountpoint.stat().st_dev == before
    wait_until(confined.answers)  # a file that is open needs no daemon
    assert confined.status().takeover == "takeover"


def test_set_id_programs_and_devices_have_no_effect_in_the_mount(node: Node) -> None:
    """Who gets root, or a job that runs as root, to leave such a file would be root, or read the disk."""
    program = node.work / "program"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    os.mknod(node.work / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (node.work / "null").chmod(0o666)

    def tries() -> None:
        ran = subprocess.run([program, "-u"], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == str(ALICE.uid)
        with pytest.raises(PermissionError):
            (node.work / "null").open("rb")

    ALICE.do(tries)


def test_nobody_reaches_the_files_past_the_mount(node: Node) -> None:
    """There all owners' files lie, with set-id bits that count."""
    (node.work / "shared").mkdir()

    def tries() -> None:
        assert (node.work / "shared").stat()
        for path in (node.store / "tree", node.store / "tree/work/shared", node.store / "index"):
            with pytest.raises(PermissionError):
                path.stat()

    ALICE.do(tries)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", sorted(_MOST_EXPOSED))
def test_the_units_are_no_more_exposed_than_they_must_be(unit: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(_UNITS / f"{unit}.service")]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert exposure is not None, told[-2000:]
    assert float(exposure[1]) <= _MOST_EXPOSED[unit]
