"""Root adopts a working directory for Alice while its former owner is still there and does what it can."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from tests.security.test_acquire import acquire, left_by
from tests.support.daemons.node import Node
from tests.support.users.attackers import attacking
from tests.support.users.privileges import ALICE, MALLORY, MAY_NET_RAW, User

BOB = User(60_002, 60_002)


@pytest.mark.promise("workdir-adopt")
def test_what_third_users_have_in_it_stays_theirs(node: Node) -> None:
    """Gain: for Alice, directories and files of Bob that Mallory had let into hers."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "mkdir -m 777 localState/shared")
    shared = home / "localState/shared"

    def leaves() -> None:
        (shared / "bobs").mkdir(mode=0o700)
        (shared / "bobs/file").write_text("Bob's")

    BOB.do(leaves)
    acquire(node, ALICE, adopt=True)
    assert shared.stat().st_uid == ALICE.uid
    assert (shared / "bobs").stat().st_uid == BOB.uid
    assert (shared / "bobs/file").stat().st_uid == BOB.uid


@pytest.mark.promise("workdir-former-owner")
def test_who_is_still_in_it_changes_nothing_more(node: Node) -> None:
    """Gain: state of Mallory's choice in Alice's job, through directories that Mallory has open from before."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "mkdir -p localState/a/b", "cd localState/a/b", "echo state >state", "chmod 666 state")
    opened = [os.open(home / name, os.O_PATH | os.O_DIRECTORY) for name in ("localState", "localState/a/b")]

    def before() -> None:
        for fd in opened:
            os.mkdir("mine", dir_fd=fd)
            os.rmdir("mine", dir_fd=fd)
        os.close(os.open("state", os.O_RDWR, dir_fd=opened[1]))

    def after() -> None:
        for fd in opened:
            _refused(partial(os.mkdir, "planted", dir_fd=fd))
            _refused(partial(os.chmod, f"/proc/self/fd/{fd}", 0o777))
        _refused(lambda: os.open("state", os.O_WRONLY, dir_fd=opened[1]))
        _refused(lambda: os.unlink("state", dir_fd=opened[1]))

    try:
        MALLORY.do(before)
        acquire(node, ALICE, adopt=True)
        MALLORY.do(after)
    finally:
        for fd in opened:
            os.close(fd)
    assert (home / "localState/a/b/state").stat().st_uid == ALICE.uid


@pytest.mark.promise("workdir-former-owner")
def test_another_name_of_a_file_opens_no_way_into_it(node: Node) -> None:
    """Gain: the same, through a hard link that Mallory keeps elsewhere, and a program with Alice's rights."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "echo state >localState/state", "chmod 6777 localState/state", "ln localState/state ../kept")
    os.setxattr(home / "localState/state", "security.capability", MAY_NET_RAW)
    acquire(node, ALICE, adopt=True)
    assert stat.S_IMODE((node.work / "kept").stat().st_mode) == 0o755
    assert "security.capability" not in os.listxattr(node.work / "kept")
    MALLORY.do(lambda: _refused(lambda: os.open(node.work / "kept", os.O_WRONLY)))


@pytest.mark.promise("workdir-former-owner")
def test_what_is_open_for_writing_is_not_adopted(node: Node) -> None:
    """Gain: the same, through a file that Mallory has open for writing."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "mkdir localState/a", "echo state >localState/a/state")
    with (home / "localState/a/state").open("r+"):
        with pytest.raises(HoldfastError, match="files in work/driver_x are open; end the processes that use them"):
            acquire(node, ALICE, adopt=True)
        for path in (home, home / "localState", home / "localState/a", home / "localState/a/state"):
            assert path.stat().st_uid == MALLORY.uid
    node.backing(home / "localState/a/state")  # waits for the close
    acquire(node, ALICE, adopt=True)
    assert (home / "localState/a/state").stat().st_uid == ALICE.uid


@pytest.mark.promise("workdir-former-owner")
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_a_pipe_of_the_former_owner_keeps_a_directory_from_being_adopted(node: Node, kind: int) -> None:
    """Gain: the same, through a FIFO or socket that Mallory has open: the daemon is never asked about what is sent."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "mkdir localState/a", "echo state >localState/state")
    pipe = home / "localState/a/pipe"
    MALLORY.do(lambda: os.mknod(pipe, kind | 0o666))
    with pytest.raises(HoldfastError, match="localState/a/pipe is a FIFO or socket, which others may have open; remove it"):
        acquire(node, ALICE, adopt=True)
    for path in (home, home / "localState", home / "localState/state", pipe):
        assert path.stat().st_uid == MALLORY.uid
    pipe.unlink()
    acquire(node, ALICE, adopt=True)
    assert (home / "localState/state").stat().st_uid == ALICE.uid


@pytest.mark.promise("workdir-former-owner")
def test_pipes_of_others_in_it_stay_theirs(node: Node) -> None:
    """Gain: Bob keeps Alice from her directory, or loses his pipe."""
    home = node.work / "driver_x"
    left_by(MALLORY, home, "mkdir -m 777 localState/shared")
    pipe = home / "localState/shared/pipe"
    BOB.do(lambda: os.mkfifo(pipe))
    acquire(node, ALICE, adopt=True)
    assert (home.stat().st_uid, pipe.stat().st_uid) == (ALICE.uid, BOB.uid)


@pytest.mark.promise("workdir-adopt")
def test_who_swaps_names_meanwhile_gets_nothing_of_others(node: Node) -> None:
    """Gain: Alice's, and so a colluding Alice's, are files of Bob and of root behind links and moved names."""
    home, shared = node.work / "driver_x", node.work / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    before = Path("/etc/shadow").stat()

    def swaps(number: int) -> None:
        """Exchange a file of Mallory's, a file of Bob's, a link and a directory under the same names."""
        top = home / "localState/deep"
        names = [top / f"{(number + turn) % 50}" for turn in range(4)]
        for name in names:
            with suppress(OSError):
                name.rename(shared / f"back-{name.name}")
        with suppress(OSError):
            (shared / f"bobs-{number % 50}").rename(names[0])
        with suppress(OSError):
            names[1].symlink_to("/etc/shadow")
        with suppress(OSError):
            names[2].mkdir()
        with suppress(OSError):
            names[3].touch()
        with suppress(OSError):
            top.rename(home / "localState/moved")
        with suppress(OSError):
            (home / "localState/moved").rename(top)

    def lays_out() -> None:
        for number in range(50):
            (shared / f"bobs-{number}").write_text("Bob's")

    left_by(MALLORY, home, "mkdir -p localState/deep", "for i in $(seq 100); do echo $i >localState/deep/m$i; done")
    BOB.do(lays_out)
    for turn in range(10):
        with attacking(MALLORY, swaps):
            with suppress(HoldfastError):  # a file may be open at the moment
                acquire(node, ALICE, adopt=True)
            node.work.stat()
        for path in [*shared.iterdir(), *home.rglob("*")]:
            if path.is_file() and not path.is_symlink() and path.read_text() == "Bob's":
                assert path.lstat().st_uid == BOB.uid, (turn, path)
        with node.client() as client:
            client.release("driver", "x")
        _give_back(home)
    assert Path("/etc/shadow").stat()[:-3] == before[:-3]


@pytest.mark.promise("workdir-former-owner")
def test_a_name_among_the_objects_of_a_store_opens_no_way_into_it(node: Node) -> None:
    """Gain: the same, through an object of Mallory's that has a name in the directory too.

    Bob's objects get no name there: he alone decides how long a file of his is kept.
    """
    home, objects = node.work / "driver_x", node.checkpoints / "shared"
    objects.mkdir()
    objects.chmod(0o777)
    for user in (MALLORY, BOB):
        user.do(partial((objects / str(user.uid)).write_bytes, b"state"))
        (objects / str(user.uid)).chmod(0o666)
    names = [objects / str(user.uid) for user in (MALLORY, BOB)]
    left_by(MALLORY, home, f"ln {names[0]} localState/", f"! ln {names[1]} localState/")
    link = home / "localState" / names[0].name
    assert link.stat().st_ino == names[0].stat().st_ino
    acquire(node, ALICE, adopt=True)
    assert link.stat().st_uid == ALICE.uid
    assert os.listdir(link.parent) == [link.name]

    def writes() -> None:
        _refused(lambda: os.open(names[0], os.O_WRONLY))
        names[0].unlink()
        names[0].write_bytes(b"planted")

    MALLORY.do(writes)
    assert link.read_bytes() == b"state"


def _give_back(home: Path) -> None:
    for path in (home, home / "localState", home / "localState/deep"):
        with suppress(FileNotFoundError):
            os.chown(path, MALLORY.uid, MALLORY.gid)


def _refused(change: Callable[[], object]) -> None:
    with pytest.raises(PermissionError):
        change()
