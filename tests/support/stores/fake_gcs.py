"""fake-gcs-server, a stand-in for Google's storage, built from its Go module once, and kept in the cache.

It lists, reads, checks conditions and deletes as Google does, in the XML API that obstore speaks, but takes writes in the
JSON API alone, so ``gcs_writes`` is before it. ``python -m tests.support.stores.fake_gcs`` makes sure that it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.stores.gcs_writes import GcsWrites
from tests.support.stores.servers import directory_of_server, served_by
from tests.support.tools.go_programs import BuildError, go_program

_MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
_BUCKET = "bucket"


@dataclass(frozen=True)
class FakeGcs:
    """A running server with one bucket. ``endpoint`` takes writes too."""

    endpoint: str
    own_endpoint: str
    pid: int

    url = f"gs://{_BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Options for ``open_store``."""
        return {"base_url": self.endpoint, "skip_signature": "true"}

    def put(self, key: str, data: bytes) -> None:
        """Store an object as another tool does, through the JSON API."""
        place = f"{self.own_endpoint}/upload/storage/v1/b/{_BUCKET}/o"
        httpx.post(place, params={"uploadType": "media", "name": key}, content=data, timeout=60).raise_for_status()


def fake_gcs_program() -> Path:
    """Return the path of the program. Raises ``OSError`` where it can't be had."""
    try:
        return go_program("fake-gcs-server", _MODULE)
    except BuildError as problem:
        raise OSError(str(problem)) from None


@contextmanager
def serving_fake_gcs() -> Iterator[FakeGcs]:
    """Run a server until the block ends."""
    program = fake_gcs_program()
    with directory_of_server() as directory:

        def command(port: int) -> list[str]:
            place = ["-host", "127.0.0.1", "-port", f"{port}", "-public-host", f"127.0.0.1:{port}"]
            return [str(program), "-scheme", "http", "-backend", "memory", "-log-level", "error", *place]

        with served_by(command, directory / "out") as (port, pid), GcsWrites(port) as writes:
            server = FakeGcs(writes.endpoint, f"http://127.0.0.1:{port}", pid)
            made = httpx.post(f"{server.own_endpoint}/storage/v1/b?project=tests", json={"name": _BUCKET}, timeout=60)
            made.raise_for_status()
            yield server


if __name__ == "__main__":
    fake_gcs_program()
