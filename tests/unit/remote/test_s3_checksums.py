"""What an S3 server says of its own about the bytes of an object, asked with the credentials and the address of a store."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import xxhash
from awscrt import checksums

from holdfast.digest import CHECKSUM_ALGORITHMS, Checksum
from holdfast.remote import RemoteStore, open_store
from tests.support.stores.lying_s3 import Answer, Asked, LyingS3, Planted
from tests.support.stores.s3 import S3Server, Versitygw

pytestmark = pytest.mark.slow

DATA = b"what another tool has stored"
VALUES: dict[str, bytes] = {
    "crc32": zlib.crc32(DATA).to_bytes(4, "big"),
    "crc32c": checksums.crc32c(DATA).to_bytes(4, "big"),
    "crc64nvme": checksums.crc64nvme(DATA).to_bytes(8, "big"),
    "md5": hashlib.md5(DATA).digest(),
    "sha1": hashlib.sha1(DATA).digest(),
    "sha256": hashlib.sha256(DATA).digest(),
    "sha512": hashlib.sha512(DATA).digest(),
    "xxhash64": xxhash.xxh64_digest(DATA),
    "xxhash3": xxhash.xxh3_64_digest(DATA),
    "xxhash128": xxhash.xxh3_128_digest(DATA),
}
GOOD = Checksum("crc32", VALUES["crc32"])


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


TRUE_HEADERS = {**Planted(DATA).headers, "Content-Length": str(len(DATA))}
GOOD_ANSWER = Answer(200, {**TRUE_HEADERS, "x-amz-checksum-crc32": encoded(GOOD.value)})


def opened(place: S3Server, options: dict[str, str] | None = None, **environment: str) -> RemoteStore:
    return open_store(
        place.url,
        place.options if options is None else options,
        environment,
        request_timeout_seconds=2,
        connect_timeout_seconds=2,
    )


def put(place: S3Server, name: str, algorithm: str = "crc32") -> None:
    """Store ``DATA`` with a checksum, which the server compares with the bytes."""
    value = {f"Checksum{algorithm.upper()}": encoded(VALUES[algorithm])}
    place.client().put_object(Bucket=place.bucket, Key=place.key(name), Body=DATA, **value)


def test_every_algorithm_is_tried() -> None:
    assert set(VALUES) == set(CHECKSUM_ALGORITHMS)


@pytest.mark.promise("vouched-copies")
@pytest.mark.parametrize("algorithm", VALUES)
def test_the_server_has_the_same_value_by_every_algorithm(algorithm: str, place: Versitygw) -> None:
    put(place, "object", algorithm)
    store = opened(place)
    assert store.has_checksums
    assert store.checksum(store.head("object")) == Checksum(algorithm, VALUES[algorithm])


@pytest.mark.parametrize("name", ["a b+c", "ü/%41~x", "(1)=!'*", "a&b;c,d@e:f"])
def test_any_name_can_be_asked_for(name: str, place: Versitygw) -> None:
    put(place, name)
    store = opened(place)
    assert store.checksum(store.head(name)) == GOOD


@pytest.mark.promise("vouched-copies")
def test_a_checksum_that_was_put_together_from_parts_is_none(place: Versitygw) -> None:
    client, where = place.client(), {"Bucket": place.bucket, "Key": place.key("object")}
    upload = client.create_multipart_upload(**where, ChecksumAlgorithm="SHA256", ChecksumType="COMPOSITE")
    where["UploadId"] = upload["UploadId"]
    part = client.upload_part(**where, PartNumber=1, Body=DATA, ChecksumAlgorithm="SHA256")
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]}]
    client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    store = opened(place)
    assert store.checksum(store.head("object")) is None


# --- credentials ------------------------------------------------------------------------------------------------------


def test_keys_of_the_environment_are_used(place: Versitygw, monkeypatch: pytest.MonkeyPatch) -> None:
    put(place, "object")
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    store = opened(place, {}, **place.environment)
    assert store.checksum(store.head("object")) == GOOD


def test_keys_of_the_options_are_used_without_the_token_of_the_environment(
    place: Versitygw, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, "object")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    store = opened(place, AWS_SESSION_TOKEN="of other keys")
    assert store.checksum(store.head("object")) == GOOD


def test_keys_of_a_profile_are_used(place: Versitygw, tmp_path: Path) -> None:
    put(place, "object")
    keys = f"aws_access_key_id = {place.access_key_id}\naws_secret_access_key = {place.secret_access_key}\n"
    (tmp_path / "credentials").write_text(f"[team]\n{keys}")
    options = {name: place.options[name] for name in ("endpoint", "region")}
    profile = {"AWS_PROFILE": "team", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "HOME": str(tmp_path)}
    store = opened(place, options, **profile)
    assert store.checksum(store.head("object")) == GOOD


@pytest.fixture
def container() -> Iterator[str]:
    """The URL where a container's processes get their credentials."""
    keys = {"AccessKeyId": "CONTAINERKEY", "SecretAccessKey": "container's", "Token": "container's token"}
    body = json.dumps({**keys, "Expiration": "2099-01-01T00:00:00Z"}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        server.shutdown()


def test_credentials_of_a_container_are_used(container: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("let me in")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    with LyingS3() as server:
        server.objects["object"] = Planted(DATA)
        store = opened(server.place, {name: server.place.options[name] for name in ("endpoint", "region")}, **os.environ)
        info = store.head("object")
        server.lie = lambda _: GOOD_ANSWER
        assert store.checksum(info) == GOOD
        for asked in server.asked:
            assert "Credential=CONTAINERKEY/" in asked.headers["Authorization"]
            assert asked.headers["x-amz-security-token"] == "container's token"


def test_a_store_that_is_asked_without_signature_is_not_asked_for_checksums(place: Versitygw) -> None:
    assert not opened(place, {**place.options, "skip_signature": "true"}).has_checksums


# --- faults -----------------------------------------------------------------------------------------------------------


def test_another_version_has_no_checksum_of_this_one(place: Versitygw) -> None:
    put(place, "object")
    store = opened(place)
    info = store.head("object")
    assert store.checksum(replace(info, etag='"other"')) is None
    assert store.checksum(replace(info, size_bytes=info.size_bytes + 1)) is None


def test_an_object_that_is_gone_has_none(place: Versitygw) -> None:
    put(place, "object")
    store = opened(place)
    info = store.head("object")
    store.delete(["object"])
    assert store.checksum(info) is None


@pytest.mark.promise("vouched-copies")
def test_a_server_that_refuses_the_question_has_none(place: Versitygw) -> None:
    put(place, "object")
    info = opened(place).head("object")
    assert opened(replace(place, secret_access_key="wrong")).checksum(info) is None


def test_an_address_where_nobody_answers_has_none(place: Versitygw) -> None:
    put(place, "object")
    info = opened(place).head("object")
    assert opened(place.through("http://127.0.0.1:9")).checksum(info) is None


def headers(checksum: str, kind: str = "FULL_OBJECT", algorithm: str = "crc32") -> Answer:
    return Answer(200, {**TRUE_HEADERS, "x-amz-checksum-type": kind, f"x-amz-checksum-{algorithm}": checksum})


LIES = {
    "none": Answer(200, TRUE_HEADERS),
    "another status": replace(GOOD_ANSWER, status=206),
    "an address elsewhere": Answer(307, {"Location": "http://127.0.0.1:9/", "Content-Length": "0"}),
    "no base64": headers("\x7f\xff"),
    "far too much": headers("A" * 10**6, algorithm="sha256"),
    "one of parts": headers(encoded(GOOD.value) + "-2"),
    "another kind": headers(encoded(GOOD.value), "COMPOSITE"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_makes_no_sense_is_no_checksum(lie: str) -> None:
    with LyingS3() as server:
        server.objects["object"] = Planted(DATA)
        store = opened(server.place)
        info = store.head("object")
        server.lie = lambda _: LIES[lie]
        assert store.checksum(info) is None
        server.lie = lambda _: GOOD_ANSWER
        assert store.checksum(info) == GOOD, "the store is asked again the next time"


def test_an_answer_that_does_not_come_in_time_is_no_checksum() -> None:
    answered = threading.Event()

    def answer(asked: Asked) -> Answer:
        answered.wait(30)
        return GOOD_ANSWER

    with LyingS3() as server:
        server.objects["object"] = Planted(DATA)
        store = opened(server.place)
        info = store.head("object")
        server.lie = answer
        assert store.checksum(info) is None
        answered.set()


def test_the_question_is_signed_with_its_header_and_the_keys_are_in_no_message(
    caplog: pytest.LogCaptureFixture, place: Versitygw
) -> None:
    with LyingS3() as server:
        server.objects["object"] = Planted(DATA)
        store = opened(server.place, {**server.place.options, "session_token": "a token"})
        info = store.head("object")
        caplog.set_level("DEBUG")
        store.checksum(info)
        asked: Any = server.asked[-1]
        assert asked.headers["x-amz-checksum-mode"] == "ENABLED"
        assert asked.headers["x-amz-security-token"] == "a token"
        assert "x-amz-checksum-mode" in asked.headers["Authorization"]
        server.lie = lambda _: Answer(500, {"Content-Length": "0"})
        store.checksum(info)
    store.checksum(info)
    assert caplog.text
    assert not [secret for secret in ("SECRET", "a token", "Signature=") if secret in caplog.text]
