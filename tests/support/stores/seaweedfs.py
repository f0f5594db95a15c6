"""SeaweedFS, a second S3 server for the tests. ``python -m tests.support.stores.seaweedfs`` makes sure that it is there.

Building it takes ten minutes or more, so the tests do not build it: they are skipped where nobody has.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.stores.s3 import S3Server
from tests.support.stores.servers import directory_of_server, free_port, served_by
from tests.support.tools.cache import cache_directory
from tests.support.tools.go_programs import go_program

_MODULE = "github.com/seaweedfs/seaweedfs@v0.0.0-20261109003541-7506e5f91cd6"
_BUCKET = "bucket"
_ACCESS_KEY_ID = "HOLDFASTKEY"
_ACTIONS = ["Admin", "Read", "List", "Tagging", "Write"]


class NotBuiltError(OSError):
    """There is no SeaweedFS to run."""


def seaweedfs_binary() -> Path:
    """Return the path of the program. Raises ``NotBuiltError``."""
    found = shutil.which("weed")
    binary = Path(found) if found else cache_directory() / "bin" / "weed"
    if not binary.exists():
        raise NotBuiltError(f"SeaweedFS is neither on the PATH nor at {binary}: ./run python -m {__name__} builds it")
    return binary


@contextmanager
def serving_seaweedfs() -> Iterator[tuple[S3Server, int]]:
    """Run a master, a volume server, a filer and S3 in one process until the block ends; yield the place and the process.

    Raises ``NotBuiltError``.
    """
    binary, secret = seaweedfs_binary(), uuid.uuid4().hex
    with directory_of_server() as directory:
        credentials = [{"accessKey": _ACCESS_KEY_ID, "secretKey": secret}]
        identities = {"identities": [{"name": "holdfast", "credentials": credentials, "actions": _ACTIONS}]}
        config = directory / "s3.json"
        config.write_text(json.dumps(identities))
        data = directory / "data"
        data.mkdir()

        def command(port: int) -> list[str]:
            ports = {name: free_port() for name in ("master", "volume", "filer")}
            grpc = {f"{name}.port.grpc": free_port() for name in (*ports, "s3")}
            numbers = {f"{name}.port": number for name, number in ports.items()} | grpc | {"s3.port": port}
            options = {"dir": data, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "s3.config": config, **numbers}
            given = [f"-{name}={value}" for name, value in options.items()]
            return [str(binary), "server", "-filer", "-s3", "-volume.max=100", "-master.volumeSizeLimitMB=64", *given]

        with served_by(command, directory / "weed.out") as (port, pid):
            server = S3Server(f"http://127.0.0.1:{port}", _BUCKET, "", _ACCESS_KEY_ID, secret)
            server.client().create_bucket(Bucket=_BUCKET)
            yield server, pid


if __name__ == "__main__":
    go_program("weed", _MODULE, "weed")
