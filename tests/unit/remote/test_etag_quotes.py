"""Etags in conditions: without quotes only for a server that compares them so, and compared here too."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import obstore
import pytest
from obstore.store import ObjectStore

from holdfast.errors import ObjectChangedError, RemoteRefusedError, RemoteUnavailableError
from holdfast.remote.etag_quotes import EtagQuotes
from tests.unit.remote.test_remote_contract import opened, put

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


@pytest.mark.parametrize("end", [0, 1])
def test_another_version_is_refused_although_the_server_minds_no_condition(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = obstore.get

    def without_condition(store: ObjectStore, path: str, *, options: dict[str, Any]) -> Any:
        return get(store, path, options=cast(Any, {name: value for name, value in options.items() if name != "if_match"}))

    monkeypatch.setattr(obstore, "get", without_condition)
    store = opened("memory://")
    first, second = (put(store, "a", data).etag for data in (b"1", b"22"))
    with pytest.raises(ObjectChangedError):
        store.read("a", 0, end, first)
    assert store.read("a", 0, end, second).info.size_bytes == 2
