"""The proxy that lets fake-gcs-server take uploads in parts: it stores what the list of parts names, or nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.support.stores.gcs_writes import GcsWrites


class Upstream(BaseHTTPRequestHandler):
    """Takes uploads of the JSON API."""

    stored: list[bytes]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.stored.append(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"etag": "e", "generation": 7}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def upload() -> Iterator[tuple[str, list[bytes], dict[int, str]]]:
    """An upload of three parts, the second sent twice: its URL, what the server stores, and the last etag of each part."""

    class Handler(Upstream):
        stored: list[bytes] = []  # noqa: RUF012 of this test

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as upstream:
        thread = threading.Thread(target=upstream.serve_forever, args=(0.01,))
        thread.start()
        with GcsWrites(upstream.server_port) as proxy:
            url = f"{proxy.endpoint}/bucket/key"
            begun = httpx.post(f"{url}?uploads").text
            url += f"?uploadId={begun.partition('<UploadId>')[2].partition('<')[0]}"
            etags: dict[int, str] = {}
            for number, part in [(1, b"a"), (2, b"x"), (2, b"b"), (3, b"c")]:
                etags[number] = httpx.put(f"{url}&partNumber={number}", content=part).headers["ETag"]
            yield url, Handler.stored, etags
        upstream.shutdown()
        thread.join()


def completed(url: str, parts: list[tuple[int, str]]) -> httpx.Response:
    """Return the answer to a list of parts."""
    listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in parts)
    return httpx.post(url, content=f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>")


def test_the_parts_of_the_list_are_the_object(upload: tuple[str, list[bytes], dict[int, str]]) -> None:
    url, stored, etags = upload
    assert completed(url, [(1, etags[1]), (2, etags[2]), (3, etags[3])]).status_code == 200
    assert stored == [b"abc"]
    assert completed(url, [(1, etags[1])]).status_code == 404, "the upload is over"


def test_a_part_that_is_not_listed_is_left_out(upload: tuple[str, list[bytes], dict[int, str]]) -> None:
    url, stored, etags = upload
    assert completed(url, [(1, etags[1]), (3, etags[3])]).status_code == 200
    assert stored == [b"ac"]


def test_a_list_that_is_wrong_stores_nothing_and_the_upload_stays(upload: tuple[str, list[bytes], dict[int, str]]) -> None:
    url, stored, etags = upload
    wrong: dict[str, list[list[tuple[int, str]]]] = {
        "InvalidPart": [[(1, etags[2])], [(4, etags[3])], [(1, etags[1]), (2, '"part-3"')]],
        "InvalidPartOrder": [[(2, etags[2]), (1, etags[1])], [(1, etags[1]), (1, etags[1])]],
        "MalformedXML": [[]],
    }
    for code, lists in wrong.items():
        for parts in lists:
            answer = completed(url, parts)
            assert (answer.status_code, code in answer.text) == (400, True), parts
    assert httpx.post(url, content=b"no list").status_code == 400
    assert stored == []
    assert completed(url, [(1, etags[1])]).status_code == 200
