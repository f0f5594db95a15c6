"""INIT, over a socket in place of ``/dev/fuse``: kernels of all supported versions come to terms with the daemon."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.kernel import InitFlag
from holdfast.kernel.native_module import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs the C module ({MISSING})")

_DAEMON = """
import json, sys
from pathlib import Path
import trio
from holdfast.kernel import Connection, InitFlag, Machine
import pyfuse3

async def serve(connection):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        while not connection.has_begun:
            await trio.sleep(0.01)
        found = connection.outcome
        print(json.dumps([int(found.offered), int(found.agreed), found.keep_error]), flush=True)
        nursery.cancel_scope.cancel()

connection = Connection(Machine.this(), passthrough=True)
connection.prepare(Path(sys.argv[2]), add=InitFlag.READDIRPLUS_WHEN_USED)
pyfuse3.init(pyfuse3.Operations(), f"/dev/fd/{sys.argv[1]}", {"fsname=none"})
connection.attach()
trio.run(serve, connection)
"""
_HEADER = struct.Struct("=IIQQIIIHH")
_INIT = 26
_READDIRPLUS = 1 << 13  # without which pyfuse3 ends
_OFFERED = _READDIRPLUS | InitFlag.READDIRPLUS_WHEN_USED | InitFlag.DROP_PRIVILEGES


def _request(minor: int, size_bytes: int) -> bytes:
    """Return the INIT of a kernel whose ``fuse_init_in`` has ``size_bytes``."""
    body = struct.pack("=IIII", 7, minor, 131072, _OFFERED).ljust(size_bytes, b"\0")
    return _HEADER.pack(_HEADER.size + len(body), _INIT, 2, 0, 0, 0, 0, 0, 0) + body


@pytest.mark.parametrize(
    ("minor", "size_bytes", "keeps"), [(31, 16, False), (36, 64, True), (99, 128, True), (99, 2048, False)]
)
def test_every_kernel_is_heard(minor: int, size_bytes: int, keeps: bool, tmp_path: Path) -> None:
    kernel, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = tmp_path / "start"
    with kernel, daemon:
        kernel.send(_request(minor, size_bytes))
        command = [sys.executable, "-c", _DAEMON, str(daemon.fileno()), str(kept)]
        ended = subprocess.run(command, pass_fds=[daemon.fileno()], stdout=subprocess.PIPE, timeout=60, check=True)
        reply = kernel.recv(4096)
    offered, agreed, keep_error = json.loads(ended.stdout)
    assert offered == _OFFERED
    assert agreed & _OFFERED == _OFFERED
    assert struct.unpack_from("=IiQIIII", reply)[1:4] == (0, 2, 7)
    assert struct.unpack_from("=IiQIIII", reply)[6] == agreed & 0xFFFFFFFF
    assert (kept.exists(), keep_error == 0) == (keeps, keeps)
