"""What the daemon removes by itself in working directories, under users who hope that it removes something else."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.control.messages import SweepRequest
from holdfast.errors import HoldfastError
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.users.attackers import attacking
from tests.support.users.privileges import ALICE, MALLORY

_DIRECTORIES = 1500
_REMOVALS = 60
_GARBAGE = "spark-00000000-0000-4000-8000-000000000000"


@pytest.mark.promise("expiry-goes-on")
def test_a_thousand_directories_that_expire_at_once_leave_others_their_turn(make_node: NodeFactory) -> None:
    """Gain: all file operations of the node wait for as long as Mallory has made directories for."""
    node = make_node(workdirs__retain_seconds=0).start()

    def makes() -> None:
        for number in range(_DIRECTORIES):
            (node.work / f"driver_{number}").mkdir()

    seen = {_DIRECTORIES}
    MALLORY.do(makes)
    while 0 not in seen:
        seen.add(len(os.listdir(node.work)))
    assert len(seen) > 3, "nobody was answered between the first removal and the last"


@pytest.mark.promise("expiry-safe")
def test_names_that_are_swapped_while_a_directory_is_emptied_lead_nowhere_else(node: Node, workspace: Path) -> None:
    """Gain: root deletes, or gives away, what Mallory's links lead to."""
    home, outside, alices = node.work / "driver_m", workspace / "outside", node.work / "alices"
    targets = [outside, alices, Path("../alices/tree"), Path("/etc")]
    outside.mkdir()

    def lays_out() -> None:
        alices.mkdir(mode=0o755)
        (alices / "tree").mkdir()
        (alices / "tree/file").touch()

    def swaps(number: int) -> None:
        for name in ("tmp", "rocksdb", f"tmp/{_GARBAGE}", "localState", ".lease", "tmp/a/b"):
            with suppress(OSError):
                (home / name).rename(home / f"moved-{number % 7}")
            with suppress(OSError):
                (home / name).symlink_to(targets[number % len(targets)])
            with suppress(OSError):
                (home / name).unlink()
            with suppress(OSError):
                (home / name).mkdir(parents=True)
            with suppress(OSError):
                (home / name / "file").touch()
        shutil.rmtree(home / f"moved-{number % 5}", ignore_errors=True)

    (outside / "file").touch()
    ALICE.do(lays_out)
    MALLORY.do(home.mkdir)
    before = [path.lstat() for path in (outside, outside / "file", alices / "tree/file", Path("/etc"), Path("/etc/shadow"))]
    with attacking(MALLORY, swaps), node.client() as client:
        for _ in range(50):
            with suppress(HoldfastError):
                client.release("driver", "m")
            with suppress(HoldfastError):
                client.acquire("driver", "m", os.getpid(), MALLORY.uid, MALLORY.gid)
            with suppress(HoldfastError):
                list(client.execute(client.plan_sweep(SweepRequest(str(node.work), grace_seconds=0)).id))
    after = [path.lstat() for path in (outside, outside / "file", alices / "tree/file", Path("/etc"), Path("/etc/shadow"))]
    assert [(stat.st_uid, stat.st_gid, stat.st_mode) for stat in after] == [
        (stat.st_uid, stat.st_gid, stat.st_mode) for stat in before
    ]
    assert (alices / "tree/file").exists()
    with suppress(HoldfastError), node.client() as client:
        client.release("driver", "m")
    wait_until(lambda: not [name for name in os.listdir(node.store / "trash") if not name.startswith("aside")])
    assert node.status().pid == node.pid


@pytest.mark.promise("expiry-safe")
def test_expiry_goes_on_under_a_user_who_works_against_it(make_node: NodeFactory, workspace: Path) -> None:
    """Gain: root deletes what Mallory's links lead to, the trash fills for ever, or nothing expires any more."""
    node = make_node(workdirs__retain_seconds=0).start()
    outside, alices, elsewhere = workspace / "outside", node.work / "alices", node.work / "elsewhere"
    targets = [outside, alices, Path("../../alices"), Path("/etc")]
    (outside / "tree").mkdir(parents=True)
    (outside / "tree/file").touch()

    def lays_out() -> None:
        (alices / "tree").mkdir(parents=True)
        (alices / "tree/file").touch()

    def leaves(home: Path, number: int) -> None:
        (home / "a/b/c").mkdir(parents=True)
        (home / "a/file").write_text("Mallory's")
        os.link(home / "a/file", elsewhere / f"link-{number}")
        for name in ("tmp", "rocksdb"):
            (home / name).rename(home / f"a/{name}")
            (home / name).symlink_to(targets[number % len(targets)])
        if number % 3 == 0:
            (home / "a/b").chmod(0)
            home.chmod(0)

    def works(number: int) -> None:
        home = node.work / f"driver_{number % 4}"
        child = os.fork()
        if child == 0:
            with suppress(OSError):
                home.mkdir()
                leaves(home, number)
            os._exit(0)
        with suppress(OSError), (elsewhere / f"link-{number - 1}").open("r+") as kept:
            os.chdir(home / "a")
            kept.write("still")
        os.waitpid(child, 0)
        for target in targets:
            for attempt in (
                lambda: (home / "a/b").rename(elsewhere / "b"),
                lambda: (elsewhere / "b").rename(home / "a/b"),
                lambda: home.rename(elsewhere / "home"),
                lambda: (home / "a").rename(home / "z"),
                lambda target=target: (home / "a").symlink_to(target),
                lambda: Path("here").mkdir(),
                lambda: Path("here/file").write_text("without a name"),
                lambda: (home / "a").unlink(),
            ):
                with suppress(OSError):
                    attempt()
        for number_before in (number - 2, number - 3):
            (elsewhere / f"link-{number_before}").unlink(missing_ok=True)

    ALICE.do(lays_out)
    MALLORY.do(elsewhere.mkdir)
    watched = [outside, outside / "tree", outside / "tree/file", alices, alices / "tree/file", Path("/etc")]
    before = [path.lstat() for path in watched]
    with attacking(MALLORY, works):
        wait_until(lambda: len(node.events("workdir-removed")) >= _REMOVALS, 300)  # at most four a second
    assert [(found.st_uid, found.st_mode, found.st_mtime_ns) for found in (path.lstat() for path in watched)] == [
        (found.st_uid, found.st_mode, found.st_mtime_ns) for found in before
    ]
    wait_until(lambda: not [name for name in os.listdir(node.work) if name.startswith("driver_")])
    wait_until(lambda: not os.listdir(node.store / "trash"))
    assert node.status().pid == node.pid


@pytest.mark.promise("expiry-goes-on")
def test_what_can_not_be_removed_is_told_and_tried_again(make_node: NodeFactory) -> None:
    """Gain: a directory that never goes, and nobody knows. Root's ``chattr +i`` stands for a fault of the disk."""
    node = make_node(workdirs__retain_seconds=0).start()
    MALLORY.do((node.work / "plain").mkdir)
    backing = node.backing(node.work / "plain").with_name("driver_m")
    with subprocess.Popen(["sleep", "infinity"]) as holder:
        try:
            with node.client() as client:
                client.acquire("driver", "m", holder.pid, MALLORY.uid, MALLORY.gid)
            if subprocess.run(["chattr", "+i", backing], check=False).returncode:
                pytest.skip("the disk knows no immutable directories")
        finally:
            holder.kill()
    try:
        told = node.wait_event("not-deleted")
    finally:
        subprocess.run(["chattr", "-i", backing], check=True)
    assert told["path"] == "work/driver_m"
    wait_until(lambda: not backing.exists())


@pytest.mark.promise("expiry-goes-on")
def test_names_that_can_not_be_removed_keep_nobody_elses_from_being_swept(node: Node) -> None:
    """Gain: the garbage of all users stays. Root's ``chattr +i`` stands for what makes a removal fail."""

    def leaves(name: str) -> None:
        (node.work / name).mkdir()
        (node.work / name / "tmp" / _GARBAGE).mkdir()

    for user, name in ((MALLORY, "driver_m"), (ALICE, "driver_z")):
        user.do(partial(leaves, name))
        node.wait_event("workdir-released", path=f"work/{name}")
    stuck = node.backing(node.work / "driver_m/tmp")
    if subprocess.run(["chattr", "+i", stuck], check=False).returncode:
        pytest.skip("the disk knows no immutable directories")
    try:
        with node.client() as client:
            plan = client.plan_sweep(SweepRequest(str(node.work), grace_seconds=0))
            *_, done = client.execute(plan.id)
    finally:
        subprocess.run(["chattr", "-i", stuck], check=True)
    assert (done.removed, done.in_use) == (1, 1)
    assert not (node.work / "driver_z/tmp" / _GARBAGE).exists()
    assert node.wait_event("not-deleted")["path"] == f"work/driver_m/tmp/{_GARBAGE}"
