"""Etags in conditions: without quotes only for a server that compares them so."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import ObjectChangedError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.etag_quotes import EtagQuotes

RIGHT = '"c4ca4238a0b923820dcc509a6f75849b"'
OTHER = '"other"'


class Server:
    """A server. ``kind``: ``quoted`` as HTTP says, ``bare`` as Ceph's; ``lax`` stores whatever is not in quotes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.conditions: list[str] = []
        self.problem: Exception | None = None

    def put_small(self, key: str, data: bytes, etag: str = "") -> str:
        assert key.startswith(".holdfast/")
        assert data
        if self.problem is not None:
            raise self.problem
        if etag:
            self.conditions.append(etag)
            is_right = {
                "quoted": etag == RIGHT,
                "bare": etag == RIGHT.strip('"'),
                "lax": not etag.startswith('"'),
                "deaf": False,
            }
            if not is_right[self.kind]:
                raise ObjectChangedError(key)
        return RIGHT

    def delete_staged(self, key: str) -> None:
        raise RemoteRefusedError(f"{key} may not be deleted", of_store=False)


@pytest.mark.parametrize(("kind", "sent"), [("quoted", OTHER), ("bare", "other"), ("lax", OTHER), ("deaf", OTHER)])
def test_an_etag_goes_without_quotes_to_a_server_that_wants_it_so_and_to_no_other(kind: str, sent: str) -> None:
    server = Server(kind)
    etags = EtagQuotes(server)
    assert (etags.are_known, etags.sent(OTHER)) == (False, OTHER), "before it was asked"
    etags.find_out()
    assert (etags.are_known, etags.sent(OTHER)) == (True, sent)


def test_a_server_that_did_not_answer_is_asked_again() -> None:
    server = Server("bare")
    etags = EtagQuotes(server)
    server.problem = RemoteUnavailableError("no answer")
    with pytest.raises(RemoteUnavailableError):
        etags.find_out()
    assert not etags.are_known
    server.problem = None
    etags.find_out()
    assert etags.sent(OTHER) == "other"


def test_several_ask_once() -> None:
    server = Server("bare")
    etags, start = EtagQuotes(server), threading.Barrier(8)

    def find_out(_: int) -> None:
        start.wait(60)
        etags.find_out()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(find_out, range(8)))
    assert len(server.conditions) == 3
