"""The Debian package on a bare Debian with systemd: installed, configured, upgraded under load, booted, removed, purged.

The tests are steps on one machine, in this order. Spark and its Java are those of the tests, seen from inside.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyspark
import pytest

from tests.support.daemons.node import wait_until
from tests.support.debian.machine import Machine, bare_machine
from tests.support.debian.package_builds import rebuilt

WORKING = Path(__file__).with_name("working.py")
INSTALL_MD = Path(__file__).parents[2] / "docs/install.md"
CONFIGURATION = """
[mount]
mountpoint = "/mnt/holdfast"
[stores.checkpoints]
url = "file:///srv/shared/checkpoints"
uid = 4711
[stores.blobs]
url = "file:///srv/shared/blobs"
uid = 4711
"""
INSTALL = "apt-get install -y -q --no-install-recommends"
MASTER = "spark://localhost:7077"
WORKER_SECONDS = 300
LOAD_SECONDS = 300

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def machine(release: str, package: Path) -> Iterator[Machine]:
    with bare_machine(release, _spark_and_java()) as machine:
        for brought in (package, rebuilt(package, "2"), WORKING):
            shutil.copy(brought, machine.root / "root")
        (machine.root / "var/log/journal").mkdir(exist_ok=True)  # it is kept from one boot to the next
        machine.boot()
        yield machine


def _spark_and_java() -> dict[Path, str]:
    """Spark's and Java's own directories, and where they are seen in the machine."""
    java = shutil.which("java")
    assert java is not None
    settings = {path: str(path) for path in Path("/etc").glob("java-*-openjdk")}
    return {Path(pyspark.__file__).parent: "/opt/spark", Path(java).resolve().parents[1]: "/opt/java", **settings}


class Load:
    """Three processes on the mount, which end with their first fault, and with the context."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._states = [machine.root / f"root/load-{number}" for number in range(3)]

    def __enter__(self) -> Self:
        for path in (self._machine.root / "root").glob("load-*"):
            path.unlink()
        for state in self._states:
            work = f"/usr/lib/holdfast/bin/python3 -I working.py {state.name} {state.name} >{state.name}.out 2>&1"
            started = f"systemd-run --quiet --unit={state.name} --collect --working-directory=/root sh -c 'exec {work}'"
            self._machine.run(started)
        return self

    def __exit__(self, *_: object) -> None:
        self._machine.does(f"systemctl stop {' '.join(state.name for state in self._states)}")

    def goes_on(self) -> None:
        """Wait until each has finished another three rounds: each round waits for the disk."""
        before = [self._finished(state)[0] for state in self._states]
        wait_until(
            lambda: all(self._finished(state)[0] >= rounds + 3 for state, rounds in zip(self._states, before, strict=True)),
            LOAD_SECONDS,
        )

    def end(self) -> float:
        """Let them end; none must have found a fault. Return the seconds of the longest round."""
        for state in self._states:
            state.with_suffix(".stop").touch()
        units = " ".join(state.name for state in self._states)
        wait_until(lambda: not self._machine.does(f"systemctl -q is-active {units}"), LOAD_SECONDS)
        assert [state.with_suffix(".out").read_text() for state in self._states] == [""] * 3
        return max(self._finished(state)[1] for state in self._states)

    def _finished(self, state: Path) -> tuple[int, float]:
        said = state.with_suffix(".out")
        assert not said.exists() or said.read_text() == ""
        rounds, longest = state.read_text().split() if state.exists() else ("0", "0")
        return int(rounds), float(longest)


def restarts(machine: Machine) -> int:
    return int(machine.run("systemctl show --property=NRestarts --value holdfastd"))


def main_process(machine: Machine, unit: str) -> str:
    return machine.run(f"systemctl show --property=MainPID --value {unit}")


def failed(machine: Machine) -> list[str]:
    """Return the units that have failed, but for the one that loads modules of the kernel: a container has none."""
    told = machine.run("systemctl list-units --failed --no-legend --plain")
    units = [line.split()[0] for line in told.splitlines()]
    return [unit for unit in units if unit != "systemd-modules-load.service"]


def is_refused_to_everybody(machine: Machine) -> bool:
    """The mountpoint is empty, and not even root can write there."""
    return machine.run("ls -A /mnt/holdfast") == "" and not machine.does("touch /mnt/holdfast/file")


def ended_in_order(machine: Machine, boot: int) -> bool:
    """In this boot, as journalctl(1) counts them, the worker had ended before the daemon was told to."""
    machine.run("journalctl --sync")  # what was told last
    told = machine.run(f"journalctl --boot={boot} --output=cat --unit=holdfastd --unit=spark-worker@7078")
    return told.rindex("Stopped spark-worker@7078") < told.rindex("stopping on SIGTERM")


def test_a_package_that_is_not_configured_starts_nothing_and_nothing_fails(machine: Machine) -> None:
    said = machine.run(f"{INSTALL} /root/holdfast_1_*.deb")
    assert "not configured yet. Edit /etc/holdfast/holdfast.toml" in said
    assert machine.run("id -gn holdfast") == "holdfast\n"
    assert machine.run("holdfast --version").startswith("holdfast ")
    assert not machine.does("command -v gcc || command -v pip3")
    machine.shut_down()
    machine.boot()
    assert machine.run("systemctl is-enabled holdfastd") == "enabled\n"
    assert not machine.does("systemctl -q is-active holdfastd")
    assert failed(machine) == []
    assert is_refused_to_everybody(machine)


def test_a_start_by_hand_without_a_configuration_fails_and_says_what_to_do(machine: Machine) -> None:
    assert "systemctl status holdfastd" in machine.fails("systemctl start holdfastd")
    machine.run("journalctl --sync")  # where the status gets the lines from
    said = machine.fails("systemctl status holdfastd")
    assert "not configured yet: set mount.mountpoint and the stores' urls in /etc/holdfast/holdfast.toml" in said
    assert restarts(machine) == 0
    machine.run("systemctl reset-failed")


def test_a_package_that_is_configured_starts_and_its_mount_answers(machine: Machine) -> None:
    with (machine.root / "etc/holdfast/holdfast.toml").open("a") as file:
        file.write(CONFIGURATION)
    machine.run("useradd --system --uid 4711 spark")
    machine.run("systemctl start holdfastd")
    assert machine.run("holdfast wait") == "/mnt/holdfast answers\n"
    assert "data         passthrough" in machine.run("holdfast status")
    assert "the mount outlives the daemon" in machine.run("holdfast status")
    machine.run("/usr/lib/holdfast/bin/python3 -c 'import holdfast_spark.session'")


def test_an_upgrade_replaces_the_daemon_under_running_work(machine: Machine) -> None:
    with Load(machine) as load:
        load.goes_on()
        daemon = main_process(machine, "holdfastd")
        machine.run(f"{INSTALL} /root/holdfast_2_*.deb")
        load.goes_on()
        print(f"longest round of a process on the mount: {load.end():.1f} s")
    assert main_process(machine, "holdfastd") != daemon
    assert "taken-over" in machine.run("holdfast events")
    assert machine.run("dpkg-query --show --showformat='${Version}' holdfast") == "2"


def test_a_daemon_that_hangs_is_replaced_under_running_work(machine: Machine) -> None:
    with Load(machine) as load:
        load.goes_on()
        machine.run("systemctl kill --signal=STOP --kill-whom=main holdfastd")
        load.goes_on()
        print(f"longest round of a process on the mount: {load.end():.1f} s")
    assert restarts(machine) == 1
    assert "hang-ended" in machine.run("holdfast events")


def test_a_worker_does_not_start_before_the_mount_answers(machine: Machine) -> None:
    machine.run(f"echo SPARK_MASTER_URL={MASTER} >/etc/holdfast/spark-worker")
    machine.run("echo JAVA_HOME=/opt/java >>/etc/holdfast/spark-worker")
    machine.run('echo 127.0.0.1 localhost "$(hostname)" >>/etc/hosts')
    machine.run("systemctl kill --signal=STOP --kill-whom=main holdfastd")
    machine.run("systemctl enable spark-worker@7078 && systemctl start --no-block spark-worker@7078")
    state = "systemctl show --property=SubState --value spark-worker@7078"
    wait_until(lambda: machine.run(state) == "start-pre\n")
    assert not machine.does("timeout 5 ls /mnt/holdfast")
    assert machine.run(state) == "start-pre\n"
    machine.run("systemctl kill --signal=CONT --kill-whom=main holdfastd")
    wait_until(lambda: machine.does("systemctl -q is-active spark-worker@7078"), WORKER_SECONDS)


def test_a_worker_runs_the_job_of_the_documentation_in_its_own_directory(machine: Machine) -> None:
    start = "systemd-run --quiet --uid=spark --setenv=SPARK_HOME=/opt/spark --setenv=JAVA_HOME=/opt/java"
    serve = f"org.apache.spark.deploy.master.Master --host localhost --port {MASTER.rpartition(':')[2]}"
    machine.run(f"{start} --unit=master /opt/spark/bin/spark-class {serve}")
    machine.run("mkdir /srv/shared/texts && echo to be or not to be >/srv/shared/texts/1")
    job = re.search(r"cat >words.py <<END\n(.+?)^END$", INSTALL_MD.read_text(), re.DOTALL | re.MULTILINE)
    assert job is not None
    assert "local[1]" in job[1]
    (machine.root / "srv/shared/words.py").write_text(job[1].replace("local[1]", MASTER))
    libraries = machine.run("echo /usr/lib/holdfast/spark /opt/spark/python/lib/*.zip").split()
    python = f"--property=SupplementaryGroups=holdfast --setenv=PYTHONPATH={':'.join(libraries)} /usr/bin/python3.*[0-9]"
    said = machine.run(f"{start} --wait --pipe {python} /srv/shared/words.py")
    assert "|  be|    2|" in said
    assert machine.run("ls /mnt/holdfast/checkpoints/words").split() == [
        "commits",
        "metadata",
        "offsets",
        "sources",
        "state",
    ]
    place = "/mnt/holdfast/work/worker_$(hostname)-7078/spark"
    assert machine.run(f"stat -c %U {place}") == "spark\n"
    assert machine.does(f"ls {place}/app-*/0/stderr")


def test_a_worker_outlives_a_restart_of_the_daemon_and_ends_before_it(machine: Machine) -> None:
    worker = main_process(machine, "spark-worker@7078")
    machine.run("systemctl restart holdfastd")
    assert main_process(machine, "spark-worker@7078") == worker
    machine.run("systemctl stop holdfastd")
    assert machine.run("systemctl show --property=Result --value spark-worker@7078") == "success\n"
    assert ended_in_order(machine, boot=0)
    assert is_refused_to_everybody(machine)


def test_mount_and_worker_come_up_with_the_machine_and_go_down_in_order(machine: Machine) -> None:
    machine.run("systemctl start spark-worker@7078")
    assert machine.run("holdfast wait") == "/mnt/holdfast answers\n"
    machine.shut_down()
    assert list((machine.root / "mnt/holdfast").iterdir()) == []
    machine.boot()
    assert machine.run("holdfast wait") == "/mnt/holdfast answers\n"
    wait_until(lambda: machine.does("systemctl -q is-active spark-worker@7078"), WORKER_SECONDS)
    assert ended_in_order(machine, boot=-1)
    assert failed(machine) == []


def test_a_removal_says_what_is_unsent_and_leaves_no_mount(machine: Machine) -> None:
    machine.run("systemctl disable --now spark-worker@7078")
    machine.run("sed -i '/^url.*blobs/a durability = \"async\"' /etc/holdfast/holdfast.toml && systemctl restart holdfastd")
    store = machine.root / "srv/shared/blobs"
    subprocess.run(["chattr", "+i", store], check=True)  # nothing can be sent there
    machine.run("echo kept >/mnt/holdfast/blobs/file")
    said = machine.run("apt-get remove -y -q holdfast")
    subprocess.run(["chattr", "-i", store], check=True)
    assert "unsent: 1 file" in said
    assert not machine.does("grep fuse.holdfast /proc/mounts")
    assert machine.does("test -d /var/lib/holdfast/store && test -e /etc/holdfast/holdfast.toml")
    assert is_refused_to_everybody(machine)
    assert not machine.does("test -e /usr/lib/holdfast")


def test_a_purge_asks_nothing_and_keeps_nothing(machine: Machine) -> None:
    machine.run("apt-get purge -y -q holdfast")
    for path in ("/etc/holdfast", "/var/lib/holdfast", "/run/holdfast", "/mnt/holdfast", "/usr/lib/holdfast"):
        assert not machine.does(f"test -e {path}"), path
    assert not machine.does("getent passwd holdfast || getent group holdfast")
    assert failed(machine) == []
    assert "holdfast" not in machine.run("systemctl list-unit-files --no-legend")
