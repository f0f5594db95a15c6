"""The page on TCP (``ui.listen``): what a client that makes its requests by hand gets past the list of routes."""

from __future__ import annotations

import socket

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import StartError, wait_until
from tests.support.stores.servers import free_port

TOKEN = "0123456789abcdef"
PLACES = [
    *(f"/ui/../{route}" for route in ("metrics", "v1/operations", "v1/holdings", "v1/openapi.json")),
    *("/ui/%2e%2e/metrics", "/ui/..%2fmetrics", "/ui//../../metrics", "/ui/x/../../metrics", "//metrics", "/v1/../metrics"),
    *("/v1/status/../operations", "/v1/./operations", "/v1/%6fperations", "/ui/../../metrics?x=/ui/"),
]


def status(port: int, target: str) -> int:
    """Return the status of the answer to GET for ``target``, sent as it is: clients of HTTP would tidy it up."""
    with socket.create_connection(("127.0.0.1", port)) as channel, channel.makefile("rwb") as stream:
        stream.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        stream.flush()
        return int(stream.readline().split()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_no_spelling_of_a_path_leads_past_the_list_of_routes(make_node: NodeFactory) -> None:
    """Gain: with the token of the page, what is for the sockets only, as every request with its caller."""
    port = free_port()
    make_node(ui__listen=f"127.0.0.1:{port}", ui__token=TOKEN).start()
    wait_until(lambda: listens(port))
    assert status(port, f"/{TOKEN}/ui/") == 200
    assert status(port, f"/{TOKEN}/v1/status") == 200
    assert {place: status(port, f"/{TOKEN}{place}") for place in PLACES if status(port, f"/{TOKEN}{place}") < 400} == {}


def test_a_daemon_with_a_page_that_anybody_can_guess_does_not_start(make_node: NodeFactory) -> None:
    """Gain: a page that the operator takes for closed, since only the log says that it needs a longer secret."""
    for token in ("", TOKEN[:-1], f"{TOKEN}/"):
        node = make_node(ui__listen=f"127.0.0.1:{free_port()}", ui__token=token)
        with pytest.raises(StartError, match=r"ui\.token"):
            node.start()
