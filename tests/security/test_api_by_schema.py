"""The API as its own document describes it: requests that schemathesis makes of that, valid and others, and the answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.support.daemons.node import Node

DOCUMENT = Path(__file__).parents[2] / "docs/openapi.json"
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
_ENDS_THE_DAEMON = "/v1/restart"

schema = schemathesis.openapi.from_dict(json.loads(DOCUMENT.read_text()))


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, disk: Path) -> Iterator[tuple[Node, str]]:
    """A node with something in it, and a URL: requests to it go to the control socket."""
    directory = disk / "api"
    node = Node(directory, f"file://{directory}/remote/checkpoints", f"file://{directory}/remote/blobs")
    try:
        node.start()
        (node.checkpoints / "job/offsets").mkdir(parents=True)
        (node.checkpoints / "job/offsets/0").write_bytes(b"x")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=forward, args=(listener, node.socket), daemon=True).start()
            yield node, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        node.clean_up()


def forward(listener: socket.socket, path: Path) -> None:
    """Hand each connection on to the Unix socket, until the listener is closed."""
    with suppress(OSError):
        while True:
            here = listener.accept()[0]
            there = socket.socket(socket.AF_UNIX)
            there.connect(str(path))
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError), source, sink:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


def test_the_document_is_committed_as_the_daemon_serves_it(served: tuple[Node, str]) -> None:
    document: dict[str, Any] = httpx.get(f"{served[1]}/v1/openapi.json").json()
    assert json.loads(DOCUMENT.read_text()) == document, (
        "curl --unix-socket SOCKET http://holdfast/v1/openapi.json | python3 -m json.tool --indent 1 >docs/openapi.json"
    )


@schema.exclude(path=_ENDS_THE_DAEMON).parametrize()
@settings(max_examples=5, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_requests_of_the_document_get_answers_of_the_document(case: Case[Any], served: tuple[Node, str]) -> None:
    response = case.call(base_url=served[1])
    case.validate_response(response, checks=_CHECKS)
