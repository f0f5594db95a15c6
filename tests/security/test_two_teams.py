"""Two teams on one node, each with a store of its own: neither learns of the other's anything, by any of the ways below."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.users.privileges import User

_RED_GROUP, _BLUE_GROUP = 61_010, 61_020
RED = User(61_001, 61_001, [_RED_GROUP])
BLUE = User(61_002, 61_002, [_BLUE_GROUP])
_SECRET = b"the secret of the red team"
_CLOSED = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EIO)


@dataclass(frozen=True)
class Ground:
    """Red has the object ``query/1`` and the file ``red_1/localState/state``, blue the working directory ``home``."""

    node: Node
    home: Path
    spare: Path

    @property
    def store(self) -> Path:
        """The red team's store."""
        return self.node.mountpoint / "red"

    @property
    def object(self) -> Path:
        """An object in it."""
        return self.store / "query/1"

    @property
    def state(self) -> Path:
        """A file of red's process."""
        return self.node.work / "red_1/localState/state"


@pytest.fixture(params=["passthrough", "daemon-io"])
def ground(make_node: NodeFactory, workspace: Path, request: pytest.FixtureRequest) -> Ground:
    settings: dict[str, object] = {"mount__passthrough": request.param == "passthrough"}
    for name, user, group in (("red", RED, _RED_GROUP), ("blue", BLUE, _BLUE_GROUP)):
        settings |= {
            f"stores__{name}__url": f"file://{workspace}/remote/{name}",
            f"stores__{name}__uid": user.uid,
            f"stores__{name}__gid": group,
            f"stores__{name}__file_mode": "0640",
            f"stores__{name}__directory_mode": "0750",
            f"roles__{name}__local_state": name,
            f"roles__{name}__blob_storage": name,
        }
    node = make_node(**settings).start()

    def settles_in() -> None:
        (node.mountpoint / "red/query").mkdir(mode=0o755)
        (node.mountpoint / "red/query/1").write_bytes(_SECRET)
        (node.work / "red_1").mkdir(mode=0o700)
        (node.work / "red_1/localState/state").write_bytes(_SECRET)

    RED.do(settles_in)
    home = node.work / "blue_1"
    BLUE.do(home.mkdir)
    return Ground(node, home, workspace)


def _mapped(path: Path) -> bytes:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:]


def _shell(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout


def _by_handle(path: Path) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(128 + 8)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint))[0] = 128
    if libc.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(ctypes.c_int()), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle.raw


def _connected(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(path))
        return True


def _asked(node: Node, path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(node.socket.with_name("status.sock")))
        channel.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := channel.recv(65536):
            answer += data
    return answer if b"red_1" in answer or b"/red" in answer or b"query" in answer else b""


def _named_through(ground: Ground, name: str) -> list[Path]:
    return [ground.home / name / "query/1", ground.home / name / "../../red_1/localState/state"]


WAYS: dict[str, Callable[[Ground], object]] = {
    "read the object": lambda g: g.object.read_bytes(),
    "stat the object": lambda g: g.object.stat(),
    "stat an object that is not there": lambda g: (g.store / "query/none").exists(),
    "list the store": lambda g: os.listdir(g.store),
    "list a directory of the store": lambda g: os.listdir(g.store / "query"),
    "walk the mount": lambda g: [path for path in g.node.mountpoint.rglob("*") if path.name in ("1", "query", "state")],
    "enter the store": lambda g: os.chdir(g.store),
    "create in the store": lambda g: (g.store / "new").touch(),
    "create below a directory of the store": lambda g: (g.store / "query/new").touch(),
    "make a directory in the store": lambda g: (g.store / "new").mkdir(),
    "overwrite the object": lambda g: g.object.write_bytes(b"blue"),
    "append to the object": lambda g: g.object.open("ab").close(),
    "truncate the object": lambda g: os.truncate(g.object, 0),
    "remove the object": lambda g: g.object.unlink(),
    "remove the directory": lambda g: (g.store / "query").rmdir(),
    "rename the object out": lambda g: g.object.rename(g.home / "stolen"),
    "rename the directory out": lambda g: (g.store / "query").rename(g.home / "stolen"),
    "rename the store": lambda g: g.store.rename(g.node.mountpoint / "blue2"),
    "rename a file over the object": lambda g: _planted(g).rename(g.object),
    "rename a directory into the store": lambda g: (g.home / "tmp").rename(g.store / "tmp"),
    "link the object": lambda g: os.link(g.object, g.home / "stolen"),
    "link a file into the store": lambda g: os.link(_planted(g), g.store / "planted"),
    "read by a symbolic link": lambda g: _linked(g).read_bytes(),
    "chmod the object": lambda g: g.object.chmod(0o666),
    "chmod the store": lambda g: g.store.chmod(0o777),
    "chown the store": lambda g: os.chown(g.store, BLUE.uid, BLUE.gid),
    "set its time": lambda g: os.utime(g.object),
    "read its attributes": lambda g: os.listxattr(g.object),
    "set an attribute": lambda g: os.setxattr(g.object, "user.x", b"x"),
    "open it as a path": lambda g: os.open(g.object, os.O_PATH),
    "map it": lambda g: _mapped(g.object),
    "copy it": lambda g: shutil.copy(g.object, g.home / "stolen"),
    "copy it by the kernel": lambda g: _shell(f"cp --reflink=auto {g.object} {g.home}/stolen && cat {g.home}/stolen"),
    "get a handle of it": lambda g: _by_handle(g.object),
    "watch it": lambda g: _shell(f"inotifywait -t 1 {g.object}"),
    "lock it": lambda g: fcntl.flock(os.open(g.object, os.O_RDONLY), fcntl.LOCK_EX),
    "read it through localState": lambda g: (g.home / "localState/query/1").read_bytes(),
    "read it through blobStorage": lambda g: (g.home / "blobStorage/query/1").read_bytes(),
    "stat it through localState": lambda g: (g.home / "localState/query/1").exists(),
    "stat it through blobStorage": lambda g: (g.home / "blobStorage/query/1").exists(),
    "go up from localState": lambda g: [path.read_bytes() for path in _named_through(g, "localState") if path.exists()],
    "make a working directory of red's role": lambda g: _as_red(g, "localState").read_bytes(),
    "look into one of red's role": lambda g: _as_red(g, "localState").exists(),
    "write through one of red's role": lambda g: _as_red(g, "blobStorage").write_bytes(b"blue"),
    "create through one of red's role": lambda g: _as_red(g, "blobStorage").with_name("new").touch(),
    "cover red's directory from one of red's role": lambda g: _covered(g),
    "make a directory of the store through one": lambda g: _listed(_as_red(g, "localState").parent),
    "enter red's working directory": lambda g: os.chdir(g.state.parent),
    "read red's state": lambda g: g.state.read_bytes(),
    "open red's lease": lambda g: (g.state.parents[1] / ".lease").open("rb"),
    "rename red's working directory": lambda g: g.state.parents[1].rename(g.node.work / "blue_9"),
    "remove red's working directory": lambda g: g.state.parents[1].rmdir(),
    "read past the mount": lambda g: (g.node.store / "tree/red/query/1").read_bytes(),
    "list past the mount": lambda g: os.listdir(g.node.store / "tree"),
    "read the store's own directory": lambda g: (g.spare / "remote/red/query/1").read_bytes(),
    "read the log": lambda g: g.node.log.read_bytes() if g.node.settings.get("log.file") else None,
    "read the journal": lambda g: (g.node.store / "events.jsonl").read_bytes(),
    "read the session": lambda g: os.listdir(g.node.session),
    "read the daemon's descriptors": lambda g: os.listdir(f"/proc/{g.node.pid}/fd"),
    "read the daemon's environment": lambda g: Path(f"/proc/{g.node.pid}/environ").read_bytes(),
    "ask for the status": lambda g: _asked(g.node, "/v1/status"),
    "ask for working directories": lambda g: _asked(g.node, "/v1/workdirs"),
    "ask for entries": lambda g: _asked(g.node, f"/v1/entries?path={g.store}"),
    "ask for events": lambda g: _asked(g.node, "/v1/events"),
    "ask for one entry": lambda g: _asked(g.node, f"/v1/entry?path={g.object}"),
    "use the control socket": lambda g: _connected(g.node.socket),
    "count the names in the work directory": lambda g: os.listdir(g.node.work / "red_1"),
}


def _planted(ground: Ground) -> Path:
    path = ground.home / "tmp/planted"
    path.write_bytes(b"blue")
    return path


def _linked(ground: Ground) -> Path:
    path = ground.home / "tmp/link"
    path.symlink_to(ground.object)
    return path


def _as_red(ground: Ground, zone: str) -> Path:
    """Return the object's name in a working directory of red's role, made by blue."""
    home = ground.node.work / "red_blue"
    home.mkdir(exist_ok=True)
    return home / zone / "query/1"


def _covered(ground: Ground) -> None:
    own = _as_red(ground, "blobStorage").parent
    own.mkdir()
    (own / "1").write_bytes(b"blue")


def _listed(directory: Path) -> list[str]:
    directory.mkdir()
    return os.listdir(directory)


@pytest.mark.promise("cross-link-rights")
@pytest.mark.parametrize("way", sorted(WAYS))
def test_one_team_gets_nothing_of_the_other(ground: Ground, way: str) -> None:
    def tries() -> None:
        try:
            learnt = WAYS[way](ground)
        except OSError as problem:
            if problem.errno not in _CLOSED:
                raise
        else:
            assert not learnt, f"{way}: {learnt!r}"

    BLUE.do(tries)
    assert (ground.spare / "remote/red/query/1").read_bytes() == _SECRET
    assert sorted(path.name for path in (ground.spare / "remote/red").rglob("[!.]*")) == ["1", "query"]
    assert ground.state.read_bytes() == _SECRET
    RED.do(lambda: [ground.object.read_bytes() == _SECRET or pytest.fail("red can't read its own")])


def test_members_of_the_team_have_what_is_theirs(ground: Ground) -> None:
    member = User(61_003, 61_003, [_RED_GROUP])

    def works() -> None:
        assert ground.object.read_bytes() == _SECRET
        assert os.listdir(ground.store / "query") == ["1"]
        home = ground.node.work / "red_2"
        home.mkdir()
        assert (home / "localState/query/1").read_bytes() == _SECRET

    member.do(works)
