"""io_uring(7): threads of the kernel ask in the name of a user, and get no more than the user does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import evict, put, refused, team_table, workdir_of
from tests.support.daemons.node import Node
from tests.support.users.attackers import running
from tests.support.users.io_uring import Ring
from tests.support.users.privileges import ALICE, MALLORY, User

SECRET = b"of nobody else's business"
TEAM = 60_100
COLLEAGUE = User(60_002, 60_002, [TEAM])
WAYS: dict[str, Callable[[Ring, Path, Path], object]] = {
    "open": lambda ring, path, _: ring.open(path, os.O_RDONLY),
    "open to write": lambda ring, path, _: ring.open(path, os.O_WRONLY | os.O_TRUNC),
    "stat": lambda ring, path, _: ring.stat(path),
    "link": lambda ring, path, own: ring.link(path, own / "link"),
    "rename": lambda ring, path, own: ring.rename(path, own / "moved"),
    "rename over it": lambda ring, path, own: ring.rename(own / "file", path),
    "unlink": lambda ring, path, _: ring.unlink(path),
    "mkdir beside it": lambda ring, path, _: ring.mkdir(path.with_name("new")),
    "attribute": lambda ring, path, _: ring.getxattr(path, b"user.x"),
}


@pytest.fixture(autouse=True)
def needs_io_uring() -> None:
    """Skip where the administrator has turned it off (``kernel.io_uring_disabled``)."""
    try:
        with Ring():
            pass
    except OSError as problem:
        pytest.skip(f"io_uring: {problem.strerror}")


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    return make_node(mount__passthrough=request.param)


def test_nothing_is_got_by_a_ring_that_is_refused_otherwise(node: Node) -> None:
    node.start()
    theirs = workdir_of(node, ALICE, "driver_a") / "closed"
    home = workdir_of(node, MALLORY, "driver_m")
    ALICE.do(lambda: theirs.mkdir(mode=0o700))
    ALICE.do(lambda: (theirs / "secret").write_bytes(SECRET))
    put(node.checkpoints / "closed/state", SECRET, ALICE)
    evict(node, node.checkpoints / "closed/state")
    closed = [theirs / "secret", node.checkpoints / "closed/state", home / "localState/closed/state"]

    def attack() -> None:
        (home / "tmp/file").touch()
        with Ring() as ring:
            for path in closed:
                for name, way in WAYS.items():
                    if path.is_relative_to(home) and name in ("rename over it", "mkdir beside it"):
                        continue  # there she has a directory of her own
                    assert refused(partial(way, ring, path, home / "tmp")) in (errno.EACCES, errno.ENOENT)

    MALLORY.do(attack)
    assert (theirs / "secret").read_bytes() == SECRET
    assert (node.checkpoints / "closed/state").read_bytes() == SECRET


def test_a_working_directory_that_is_made_by_a_ring_is_held_by_the_process(node: Node) -> None:
    """Gain: a directory that seems to be free as soon as the kernel's thread ends."""
    node.start()

    def makes() -> None:
        with Ring() as ring:
            ring.mkdir(node.work / "driver_m")

    with running(MALLORY, makes) as pid, node.client() as client:
        (workdir,) = client.workdirs()
        assert (workdir.holder or "").startswith(f"pid {pid} ")
    node.wait_event("workdir-released", path="work/driver_m")


def test_a_group_counts_for_a_ring_as_long_as_its_process_is_in_it(node: Node, workspace: Path) -> None:
    """The kernel's thread goes on with the groups that the process had when the thread began."""
    configuration = workspace / "holdfast.toml"
    configuration.write_text(team_table("team", f"file://{workspace}/team", {}, ALICE, TEAM))
    configuration.chmod(0o644)
    (workspace / "team").mkdir()
    node.environment = {"HOLDFAST_CONFIG": str(configuration)}
    node.start()
    zone = node.mountpoint / "team"
    for name in ("one", "two"):
        (zone / name).write_bytes(SECRET)
        evict(node, zone / name)
    home = node.work / "team_c"

    def reads() -> None:
        os.setgroups([TEAM])
        os.setresgid(COLLEAGUE.gid, COLLEAGUE.gid, COLLEAGUE.gid)
        os.setresuid(COLLEAGUE.uid, COLLEAGUE.uid, 0)
        home.mkdir()
        with Ring() as ring:
            assert ring.read(ring.open(home / "localState/one", os.O_RDONLY), 100) == SECRET
            os.seteuid(0)
            os.setgroups([])
            os.seteuid(COLLEAGUE.uid)
            for path in (home / "localState/two", home / "localState/one", zone / "two"):
                assert refused(partial(os.open, path, os.O_RDONLY)) in (errno.ENOENT, errno.EACCES)
                assert refused(partial(ring.open, path, os.O_RDONLY)) in (errno.ENOENT, errno.EACCES), path

    User(0, 0).do(reads)
