"""What the daemon removes by itself in working directories, under users who hope that it removes something else."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from holdfast.control.messages import SweepRequest
from holdfast.errors import HoldfastError
from tests.conftest import NodeFactory
from tests.support.attackers import attacking
from tests.support.node import Node, wait_until
from tests.support.privileges import ALICE, MALLORY

_DIRECTORIES = 1500
_GARBAGE = "spark-00000000-0000-4000-8000-000000000000"


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
