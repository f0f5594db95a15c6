"""Working directories that somebody else has made first, with what the next one would take for its own state."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import ALICE, MALLORY, User


def left_by(user: User, home: Path, *commands: str) -> None:
    """Let a process of ``user`` make the working directory ``home``, run shell commands in it, and end."""
    script = "\n".join(["set -e", f"mkdir {home}", f"cd {home}", *commands])
    subprocess.run(["sh", "-c", script], check=True, preexec_fn=user.become)


def acquire(node: Node, user: User, *, adopt: bool = False) -> None:
    with node.client() as client:
        wait_until(lambda: all(found.holder is None for found in client.workdirs()))
        client.acquire("driver", "x", os.getpid(), user.uid, user.gid, adopt=adopt)


@pytest.mark.promise("workdir-owner")
def test_who_was_there_first_is_not_taken_for_the_owner(node: Node) -> None:
    """Gain: state of Mallory's choice in the job of another user, or of root."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "echo planted >localState/state")
    for user in (ALICE, User(0, 0)):
        with pytest.raises(HoldfastError, match=f"it belongs to user {MALLORY.uid}, not to user {user.uid}"):
            acquire(node, user)
    assert node.wait_event("workdir-refused")["uid"] == ALICE.uid
    assert (home / "localState/state").read_text() == "planted\n"


@pytest.mark.promise("workdir-owner")
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("rmdir tmp; ln -s /etc tmp", "tmp in it is not a directory"),
        ("rmdir rocksdb; ln -s ../../checkpoints rocksdb", "rocksdb in it is not a directory"),
        ("rmdir localState; mkfifo localState", "localState in it is not a directory"),
        ("rmdir blobStorage; touch blobStorage", "blobStorage in it is not a directory"),
        ("chmod 777 .", "all users may write into it"),
    ],
)
def test_what_is_in_place_of_a_directory_is_refused(node: Node, command: str, problem: str) -> None:
    """Gain: whoever made the link decides where the process, and what empties its directories, goes."""
    left_by(ALICE, node.work / "driver_x", command)
    with pytest.raises(HoldfastError, match=problem):
        acquire(node, ALICE)
    assert os.listdir("/etc")


@pytest.mark.promise("workdir-owner")
def test_a_directory_of_another_user_inside_is_refused(node: Node) -> None:
    left_by(ALICE, node.work / "driver_x", "rmdir rocksdb", "chmod 777 .")
    MALLORY.do((node.work / "driver_x/rocksdb").mkdir)
    (node.work / "driver_x").chmod(0o755)
    with pytest.raises(HoldfastError, match=f"rocksdb in it belongs to user {MALLORY.uid}"):
        acquire(node, ALICE)


@pytest.mark.promise("workdir-adopt")
def test_root_adopts_a_directory_for_another_user(node: Node) -> None:
    home = node.work / "driver_x"
    secret = node.work / "secret"
    secret.mkdir(mode=0o700)
    (secret / "file").write_text("secret")
    left_by(
        MALLORY,
        home,
        "echo planted >localState/state",
        f"rmdir tmp; ln -s {secret} tmp",
        "ln -s /etc/shadow localState/link",
    )
    acquire(node, ALICE, adopt=True)
    for path in (home, home / "tmp", home / "localState", home / "localState/state", home / ".lease"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (ALICE.uid, ALICE.gid)
    assert stat.S_ISDIR((home / "tmp").lstat().st_mode)
    assert (home / "localState/link").is_symlink()
    assert Path("/etc/shadow").stat().st_uid == 0
    assert (secret / "file").read_text() == "secret"
    assert secret.stat().st_uid == 0


@pytest.mark.promise("workdir-adopt")
def test_adopting_is_for_root_alone(node: Node) -> None:
    """Gain: a member of the control group gets anybody's directory."""
    left_by(ALICE, node.work / "driver_x")
    os.chown(node.socket, 0, MALLORY.gid)

    def tries() -> None:
        with node.client() as client, pytest.raises(HoldfastError, match="only root may adopt"):
            client.acquire("driver", "x", os.getpid(), adopt=True)

    MALLORY.do(tries)
    assert (node.work / "driver_x").stat().st_uid == ALICE.uid


def test_a_user_finds_its_own_directory_again(node: Node) -> None:
    home = node.work / "driver_x"
    left_by(ALICE, home, "echo state >localState/state", "echo left >tmp/left")
    acquire(node, ALICE)
    assert (home / "localState/state").read_text() == "state\n"
    assert os.listdir(home / "tmp") == []


@pytest.mark.promise("workdir-owner")
def test_without_an_owner_it_is_the_one_of_the_process(node: Node) -> None:
    left_by(ALICE, node.work / "driver_x")
    with subprocess.Popen(["sleep", "infinity"], preexec_fn=ALICE.become) as process:
        try:
            with node.client() as client:
                wait_until(lambda: all(found.holder is None for found in client.workdirs()))
                assert client.acquire("driver", "x", process.pid).holder
                assert client.acquire("driver", "new", process.pid).holder
            assert (node.work / "driver_new/tmp").stat().st_uid == ALICE.uid
        finally:
            process.kill()


# --- leases ---------------------------------------------------------------------------------------------------------


@pytest.mark.promise("workdir-leases")
def test_nobody_else_opens_a_lease(node: Node) -> None:
    """Gain: a directory that Mallory holds for ever, and whose owner can't come back to it."""
    home = node.work / "driver_x"
    left_by(ALICE, home)

    def tries() -> None:
        with pytest.raises(PermissionError):
            (home / ".lease").open("rb")

    MALLORY.do(tries)
    ALICE.do(lambda: (home / ".lease").open("rb").close())


@pytest.mark.promise("workdir-leases")
def test_a_lease_of_an_earlier_version_is_closed_to_others(make_node: NodeFactory) -> None:
    node = make_node().start()
    home = node.work / "driver_x"
    left_by(ALICE, home)
    (home / ".lease").chmod(0o444)
    os.chown(home / ".lease", 0, 0)
    acquire(node, ALICE)
    found = (home / ".lease").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (ALICE.uid, 0o400)


@pytest.mark.promise("workdir-leases")
@pytest.mark.parametrize("command", ["ln -s /etc/shadow .lease", "mkfifo .lease", "mkdir .lease", "ln {other} .lease"])
def test_what_is_in_place_of_a_lease_is_replaced(node: Node, command: str) -> None:
    """Gain: the owner and mode of another file."""
    other = node.work / "other"
    other.write_text("mine")
    os.chown(other, ALICE.uid, ALICE.gid)
    left_by(ALICE, node.work / "driver_x", "rm .lease", command.format(other=other))
    before = Path("/etc/shadow").stat()
    acquire(node, ALICE)
    found = (node.work / "driver_x/.lease").lstat()
    assert (stat.S_ISREG(found.st_mode), found.st_nlink, stat.S_IMODE(found.st_mode)) == (True, 1, 0o400)
    assert Path("/etc/shadow").stat().st_mode == before.st_mode
    assert other.read_text() == "mine"
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
