"""The Debian package on a bare Debian with systemd: installed, configured, upgraded under load, booted, removed, purged.

The tests are steps on one machine, in this order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import Machine, bare_debian
from tests.support.node import wait_until

CHECKOUT = Path(__file__).parents[2]
WORKING = Path(__file__).with_name("working.py")
CONFIGURATION = """
[mount]
mountpoint = "/mnt/holdfast"
[stores.checkpoints]
url = "file:///srv/shared/checkpoints"
[stores.blobs]
url = "file:///srv/shared/blobs"
"""
SPARK = r"""#!/bin/sh
echo "$*" >"$SPARK_WORKER_DIR/started"
trap 'ls /mnt/holdfast >"$SPARK_WORKER_DIR/ended"; exit 143' TERM
while :; do sleep 1 & wait; done
"""
INSTALL = "apt-get install -y -q --no-install-recommends"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with bare_debian() as machine:
        _build_twice(machine.root / "root")
        shutil.copy(WORKING, machine.root / "root")
        machine.boot()
        yield machine


def _build_twice(directory: Path) -> None:
    """Build the package as version 1, and again as version 2; uncompressed, which takes a third of the time."""
    environment = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}
    build = [sys.executable, "-m", "systemd.debian", "--version=1", f"--output={directory}"]
    subprocess.run(build, check=True, cwd=CHECKOUT, capture_output=True, env=environment)
    (first,) = directory.glob("holdfast_1_*.deb")
    unpacked = directory / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", str(first), str(unpacked)], check=True)
    control = unpacked / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: 1\n", "Version: 2\n"))
    second = str(first).replace("holdfast_1_", "holdfast_2_")
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(unpacked), second], check=True, env=environment)
    shutil.rmtree(unpacked)


class Load:
    """Three processes on the mount, which end with their first fault."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._states = [machine.root / f"root/load-{number}" for number in range(3)]
        for path in (machine.root / "root").glob("load-*"):
            path.unlink()
        for state in self._states:
            work = f"/usr/lib/holdfast/bin/python3 -I working.py {state.name} {state.name} >{state.name}.out 2>&1"
            started = f"systemd-run --quiet --unit={state.name} --collect --working-directory=/root sh -c 'exec {work}'"
            machine.run(started)

    def goes_on(self) -> None:
        """Wait until each has finished another three rounds."""
        before = [self._rounds(state) for state in self._states]
        wait_until(
            lambda: all(self._rounds(state) >= rounds + 3 for state, rounds in zip(self._states, before, strict=True))
        )

    def end(self) -> None:
        """Let them end; none must have found a fault."""
        for state in self._states:
            state.with_suffix(".stop").touch()
        wait_until(lambda: not any(self._machine.does(f"systemctl -q is-active {state.name}") for state in self._states))
        assert [state.with_suffix(".out").read_text() for state in self._states] == [""] * 3

    def _rounds(self, state: Path) -> int:
        said = state.with_suffix(".out")
        assert not said.exists() or said.read_text() == ""
        return int(state.read_text()) if state.exists() else 0


def restarts(machine: Machine) -> int:
    return int(machine.run("systemctl show --property=NRestarts --value holdfastd"))


def test_a_package_that_is_not_configured_starts_nothing_and_nothing_fails(machine: Machine) -> None:
    said = machine.run(f"{INSTALL} /root/holdfast_1_*.deb")
    assert "not configured yet. Edit /etc/holdfast/holdfast.toml" in said
    assert machine.run("systemctl is-enabled holdfastd") == "enabled\n"
    assert not machine.does("systemctl -q is-active holdfastd")
    assert machine.run("systemctl list-units --failed --no-legend") == ""
    assert machine.run("id -gn holdfast") == "holdfast\n"
    assert machine.run("holdfast --version").startswith("holdfast ")
    assert not machine.does("touch /mnt/holdfast/file")  # root's, and refused all the same
    assert not machine.does("command -v gcc || command -v pip3")


def test_a_package_that_is_configured_starts_and_its_mount_answers(machine: Machine) -> None:
    with (machine.root / "etc/holdfast/holdfast.toml").open("a") as file:
        file.write(CONFIGURATION)
    machine.run("systemctl start holdfastd")
    assert machine.run("holdfast wait") == "/mnt/holdfast answers\n"
    assert "data         passthrough" in machine.run("holdfast status")
    assert "the mount outlives the daemon" in machine.run("holdfast status")
    machine.run("/usr/lib/holdfast/bin/python3 -c 'import holdfast_spark.session'")


def test_an_upgrade_replaces_the_daemon_under_running_work(machine: Machine) -> None:
    load = Load(machine)
    load.goes_on()
    daemon = machine.run("systemctl show --property=MainPID --value holdfastd")
    machine.run(f"{INSTALL} /root/holdfast_2_*.deb")
    load.goes_on()
    load.end()
    assert machine.run("systemctl show --property=MainPID --value holdfastd") != daemon
    assert "taken-over" in machine.run("holdfast events")
    assert machine.run("dpkg-query --show --showformat='${Version}' holdfast") == "2"


def test_a_daemon_that_hangs_is_replaced_under_running_work(machine: Machine) -> None:
    load = Load(machine)
    load.goes_on()
    machine.run("systemctl kill --signal=STOP --kill-whom=main holdfastd")
    load.goes_on()
    load.end()
    assert restarts(machine) == 1
    assert "hang-ended" in machine.run("holdfast events")


def test_a_worker_outlives_a_restart_of_the_daemon_and_ends_before_it(machine: Machine) -> None:
    """Spark is not there: what stands in for it writes down with what it was started."""
    spark = machine.root / "opt/spark/bin/spark-class"
    spark.parent.mkdir(parents=True)
    spark.write_text(SPARK)
    spark.chmod(0o755)
    machine.run("useradd --system spark && echo SPARK_MASTER_URL=spark://master:7077 >/etc/holdfast/spark-worker")
    machine.run("systemctl stop holdfastd && systemctl start spark-worker@7078")
    worker = machine.run("systemctl show --property=MainPID --value spark-worker@7078")
    place = "/mnt/holdfast/work/worker_$(hostname)-7078/spark"
    wait_until(lambda: machine.does(f"test -s {place}/started"))
    assert "worker.Worker --port 7078 spark://master:7077" in machine.run(f"cat {place}/started")
    assert machine.run(f"stat -c %U {place}") == "spark\n"
    machine.run("systemctl restart holdfastd")
    assert machine.run("systemctl show --property=MainPID --value spark-worker@7078") == worker
    machine.run("systemctl stop holdfastd")
    assert machine.run("systemctl show --property=Result --value spark-worker@7078") == "success\n"
    machine.run("systemctl start holdfastd")
    assert "checkpoints" in machine.run(f"cat {place}/ended")


def test_the_mount_comes_up_with_the_machine(machine: Machine) -> None:
    machine.shut_down()
    assert not (machine.root / "mnt/holdfast/checkpoints").exists()
    machine.boot()
    assert machine.run("holdfast wait") == "/mnt/holdfast answers\n"
    assert machine.run("systemctl list-units --failed --no-legend") == ""


def test_a_removal_says_what_is_unsent_and_leaves_no_mount(machine: Machine) -> None:
    machine.run(
        'sed -i \'/shared.blobs"/a durability = "async"\' /etc/holdfast/holdfast.toml && systemctl restart holdfastd'
    )
    machine.run(
        "mv /srv/shared/blobs /srv/shared/away && echo in the way >/srv/shared/blobs && echo kept >/mnt/holdfast/blobs/file"
    )
    said = machine.run("apt-get remove -y -q holdfast")
    assert "unsent: 1 file" in said
    assert not machine.does("grep fuse.holdfast /proc/mounts")
    assert machine.does("test -d /var/lib/holdfast/store && test -e /etc/holdfast/holdfast.toml")
    assert machine.run("ls -A /mnt/holdfast") == ""
    assert not machine.does("test -e /usr/lib/holdfast")


def test_a_purge_asks_nothing_and_keeps_nothing(machine: Machine) -> None:
    machine.run("apt-get purge -y -q holdfast")
    for path in ("/etc/holdfast", "/var/lib/holdfast", "/run/holdfast", "/mnt/holdfast", "/usr/lib/holdfast"):
        assert not machine.does(f"test -e {path}"), path
    assert not machine.does("getent passwd holdfast || getent group holdfast")
    assert machine.run("systemctl list-units --failed --no-legend") == ""
    assert "holdfast" not in machine.run("systemctl list-unit-files --no-legend")
