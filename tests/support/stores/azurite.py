"""Azurite, Microsoft's own stand-in for Azure's blob storage, got from npm once and kept in the cache."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.stores.servers import directory_of_server, served_by
from tests.support.tools.cache import cache_directory, locked

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

_VERSION = "3.37.0"
_ACCOUNT, _CONTAINER = "holdfast", "container"
_KEY = base64.b64encode(b"a key of the tests for their own Azurite").decode()


@dataclass(frozen=True)
class Azurite:
    """An account at a running Azurite, with one container."""

    endpoint: str
    pid: int

    url = f"az://{_CONTAINER}"

    @property
    def options(self) -> dict[str, Any]:
        """Options for ``open_store``, credentials included."""
        return {"endpoint": self.endpoint, "account_name": _ACCOUNT, "account_key": _KEY}

    def client(self) -> ContainerClient:
        """Return a client of Microsoft's SDK: another tool that works on the same objects."""
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient(self.endpoint, credential=_KEY).get_container_client(_CONTAINER)


def azurite_program() -> Path:
    """Return the path of the program. Raises ``OSError`` or ``subprocess.CalledProcessError`` where it can't be had."""
    directory = cache_directory() / f"azurite-{_VERSION}"
    program = directory / "node_modules/azurite/dist/src/blob/main.js"
    with locked(cache_directory() / "azurite.lock"):
        if not program.exists():
            if shutil.which("npm") is None:
                raise FileNotFoundError("it comes by npm, which ./run does not install")
            install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]
            with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
                new = Path(scratch, "azurite")
                subprocess.run([*install, new, f"azurite@{_VERSION}"], check=True, capture_output=True)
                new.rename(directory)
    return program


@contextmanager
def serving_azurite() -> Iterator[Azurite]:
    """Run an Azurite until the block ends."""
    program = azurite_program()
    with directory_of_server() as directory:

        def command(port: int) -> list[str]:
            place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
            accounts = f"AZURITE_ACCOUNTS={_ACCOUNT}:{_KEY}"
            return ["env", accounts, "node", str(program), *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]

        with served_by(command, directory / "azurite.out") as (port, pid):
            server = Azurite(f"http://127.0.0.1:{port}/{_ACCOUNT}", pid)
            server.client().create_container()
            yield server
