"""A store, or a proxy before it, that answers lies: errors for who asked, never wrong bytes, and a daemon that goes on."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from holdfast.digest import fingerprint_of_buffer
from tests.conftest import NodeFactory
from tests.security.test_hostile_names import error_of, over, still_serves
from tests.support.daemons.node import Node
from tests.support.stores.lying_s3 import GOOD, Answer, Asked, LyingS3, Planted, digested, endless, page, xml

CHUNK_BYTES = 8 * 2**20


@pytest.fixture
def node(make_node: NodeFactory, lying: LyingS3) -> Node:
    """A started node over a server that tells the truth until a test gives it a lie."""
    return over(make_node, lying)


def is_get(asked: Asked) -> bool:
    """Whether this asks for the bytes of an object, of those that the test lies about."""
    return asked.method == "GET" and not asked.is_list and asked.key.startswith("checkpoints/bad")


def is_list_of_bad(asked: Asked) -> bool:
    """Whether this asks for the listing of the directory that the test lies about."""
    return asked.is_list and asked.query["prefix"].startswith("checkpoints/bad")


# --- listings ---------------------------------------------------------------------------------------------------------

LONG = "x" * 1000
LISTINGS: dict[str, Callable[[], Answer]] = {
    "keys of other directories": lambda: page({"checkpoints/other/file": Planted(), "elsewhere": Planted()}),
    "a key that would lead out once its prefix is cut off": lambda: page({"checkpointz/ba../../passwd": Planted()}),
    "a key further below than was asked": lambda: page({"checkpoints/bad/deeper/file": Planted()}),
    "directories of elsewhere": lambda: page({}, ["checkpoints/other/deep"]),
    "a directory of directories": lambda: page({}, ["checkpoints/bad/a/b"]),
    "dots": lambda: page({"checkpoints/bad/../../passwd": Planted()}),
    "an empty part": lambda: page({"checkpoints/bad//file": Planted()}),
    "a control character": lambda: page({"checkpoints/bad/a\x7fb": Planted()}),
    "a size that no file has": lambda: page({"checkpoints/bad/file": Planted(listed_bytes=2**64 - 1)}),
    "a negative size": lambda: page({"checkpoints/bad/file": Planted(listed_bytes=-1)}),
    "a size of thousand digits": lambda: page({"checkpoints/bad/file": Planted(listed_bytes=10**1000)}),
    "a year of six digits": lambda: page({"checkpoints/bad/file": Planted(modified_in_lists="+262142-12-31T23:59:59Z")}),
    "no time": lambda: page({"checkpoints/bad/file": Planted(modified_in_lists="")}),
    "no XML": lambda: xml("\0" * 1000),
    "entities in entities": lambda: xml(
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY a{n} "{f"&a{n - 1 or str()};" * 10}">' for n in range(1, 10))
        + "]><ListBucketResult><Contents><Key>&a9;</Key></Contents></ListBucketResult>"
    ),
    "an entity that is a file of the node": lambda: xml(
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
        "<ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>"
    ),
    "an element in an element in …": lambda: xml("<ListBucketResult>" + "<a>" * 200_000),
}


@pytest.mark.promise("lying-store")
@pytest.mark.parametrize("lie", LISTINGS)
def test_a_listing_that_lies_is_an_error_and_shows_nothing(node: Node, lying: LyingS3, lie: str) -> None:
    """Names of other places, or impossible sizes and times, would end the daemon or have it work outside of the zone."""
    answer = LISTINGS[lie]()
    lying.objects["checkpoints/bad/file"] = Planted(GOOD)
    lying.lie = lambda asked: answer if is_list_of_bad(asked) else None
    assert error_of(partial(os.listdir, node.checkpoints / "bad")) == errno.EIO
    still_serves(node)


STRANGE: dict[str, Planted] = {
    "of the year 9999": Planted(GOOD, modified="Fri, 31 Dec 9999 23:59:59 GMT", modified_in_lists="9999-12-31T23:59:59Z"),
    "of the year 1960": Planted(GOOD, modified="Fri, 01 Jan 1960 00:00:00 GMT", modified_in_lists="1960-01-01T00:00:00Z"),
    "with quotes and newlines in its etag": Planted(GOOD, etag='"a"\n"b'),
    "without an etag": Planted(GOOD, etag=""),
    "with an etag that is no ASCII": Planted(GOOD, etag='"\u00e9"'),
    "with a digest of another size": Planted(GOOD, metadata={"holdfast-digest": "xxh3-128:00"}),
    "with a digest of 60,000 characters": Planted(GOOD, metadata={"holdfast-digest": "xxh3-128:" + "0" * 60_000}),
    "with an unknown digest": Planted(GOOD, metadata={"holdfast-digest": "md4:" + "0" * 32}),
    "with chunks that are none": Planted(GOOD, metadata={"holdfast-digest": "\u00b2:", "holdfast-chunks": "=" * 1000}),
    "with chunks of a larger object": Planted(
        GOOD, metadata={**fingerprint_of_buffer(GOOD).metadata(), "holdfast-chunks": "AAAA" * 500}
    ),
    "that another node has signed": Planted(GOOD, metadata={"holdfast-node": "\x7f" * 1000, "holdfast-put": "-1"}),
}


@pytest.mark.promise("strange-attributes")
@pytest.mark.parametrize("kind", STRANGE)
def test_an_object_with_strange_attributes_is_read_or_refused(node: Node, lying: LyingS3, kind: str) -> None:
    """One planted object would end every daemon that lists its directory, or fetches it ahead."""
    lying.objects["checkpoints/bad/file"] = STRANGE[kind]
    assert os.listdir(node.checkpoints / "bad") == ["file"]
    try:
        assert (node.checkpoints / "bad/file").read_bytes() == GOOD
    except OSError as problem:
        assert problem.errno == errno.EIO  # noqa: PT017 either is right
    still_serves(node)


# --- bytes ------------------------------------------------------------------------------------------------------------


def partial_answer(found: Planted, length: int, where: str, body: Iterator[bytes], **headers: str) -> Answer:
    """Return an answer to a GET of a range whose headers say what the test wants."""
    return Answer(206, {**found.headers, "Content-Length": str(length), "Content-Range": where, **headers}, body)


def other_range(found: Planted) -> Answer:
    return partial_answer(found, 5, f"bytes 3-7/{len(GOOD)}", iter([GOOD[3:8]]))


def whole(found: Planted) -> Answer:
    return Answer(200, {**found.headers, "Content-Length": str(len(GOOD))}, [GOOD])


def endless_body(found: Planted) -> Answer:
    return partial_answer(found, 2**40, f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}", iter(endless()))


def short_body(found: Planted) -> Answer:
    return partial_answer(found, 3, f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}", iter([GOOD[:3]]))


def packed(found: Planted) -> Answer:
    bomb = itertools.chain([bytes.fromhex("1f8b0800000000000003")], itertools.repeat(bytes(100), 1))
    return partial_answer(found, 110, f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}", bomb, **{"Content-Encoding": "gzip"})


def another_version(found: Planted) -> Answer:
    body = b"!" * len(GOOD)
    other = digested(body)
    return partial_answer(other, len(GOOD), f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}", iter([body]))


def another_content(found: Planted) -> Answer:
    return partial_answer(found, len(GOOD), f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}", iter([b"!" * len(GOOD)]))


def larger_object(found: Planted) -> Answer:
    return partial_answer(found, len(GOOD), f"bytes 0-{len(GOOD) - 1}/{2**40}", iter([GOOD]))


ANSWERS = (
    other_range,
    whole,
    endless_body,
    short_body,
    packed,
    another_version,
    another_content,
    larger_object,
)


@pytest.mark.promise("lying-store")
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_not_what_was_asked_is_never_read(
    node: Node, lying: LyingS3, answer: Callable[[Planted], Answer]
) -> None:
    """Other bytes than the object's would be read as a checkpoint, or fill memory and disk."""
    found = lying.objects["checkpoints/bad/file"] = digested(GOOD)
    lying.lie = lambda asked: answer(found) if is_get(asked) else None
    assert error_of((node.checkpoints / "bad/file").read_bytes) == errno.EIO
    blocks = 0
    for path in (node.store / "fetching").iterdir():
        with suppress(FileNotFoundError):  # the daemon removes it meanwhile
            blocks += path.stat().st_blocks
    assert blocks == 0
    still_serves(node)


@pytest.mark.promise("stale-digest")
@pytest.mark.parametrize("times", [1, 100])
def test_bytes_that_changed_on_the_way_are_no_stale_digest(node: Node, lying: LyingS3, times: int) -> None:
    """The ETag is the MD5 of other bytes than those that came."""
    content = os.urandom(3 * CHUNK_BYTES)
    found = lying.objects["checkpoints/bad/file"] = digested(content)
    left = itertools.repeat(None, times)

    def flipping(asked: Asked) -> Answer | None:
        if not is_get(asked) or asked.range is None or asked.range[0] != CHUNK_BYTES or next(left, True):
            return None
        start, end = asked.range
        body = bytes([content[start] ^ 1]) + content[start + 1 : end]
        return partial_answer(found, end - start, f"bytes {start}-{end - 1}/{len(content)}", iter([body]))

    lying.lie = flipping
    if times == 1:
        assert (node.checkpoints / "bad/file").read_bytes() == content
    else:
        assert error_of((node.checkpoints / "bad/file").read_bytes) == errno.EIO
    assert not node.events("stale-digest")
    assert node.events("corrupt-arrival")
    still_serves(node)


def test_a_listed_size_that_is_not_the_objects_is_an_error(node: Node, lying: LyingS3) -> None:
    """A reader would get half of an object, or zeros behind it."""
    for listed_bytes in (3, 5 * 2**20):
        lying.objects["checkpoints/bad/file"] = Planted(GOOD, listed_bytes=listed_bytes)
        assert os.listdir(node.checkpoints / "bad") == ["file"]
        assert error_of((node.checkpoints / "bad/file").read_bytes) in (errno.EIO, 0)
    still_serves(node)


@pytest.mark.promise("lying-store")
def test_parts_of_two_versions_are_never_put_together(node: Node, lying: LyingS3) -> None:
    """A server that ignores which version is asked for would mix a checkpoint of two, each part with a digest that fits."""
    versions = [digested(bytes([number]) * 3 * CHUNK_BYTES) for number in (1, 2)]
    lying.objects["checkpoints/bad/file"] = versions[0]

    def mixing(asked: Asked) -> Answer | None:
        if not is_get(asked) or asked.range is None:
            return None
        start, end = asked.range
        found = versions[0 if start == 0 else 1]
        where = f"bytes {start}-{end - 1}/{len(found.content)}"
        answer = partial_answer(found, end - start, where, iter([found.content[start:end]]))
        return Answer(206, {**answer.headers, "ETag": versions[0].tag}, answer.body)

    lying.lie = mixing
    assert error_of((node.checkpoints / "bad/file").read_bytes) == errno.EIO
    still_serves(node)


@pytest.mark.promise("lying-store")
def test_a_part_without_the_digest_of_the_others_is_not_believed(node: Node, lying: LyingS3) -> None:
    """Who can drop a header from one answer would have unchecked bytes served as checked ones."""
    found = lying.objects["checkpoints/bad/file"] = digested(b"1" * 3 * CHUNK_BYTES)

    def dropping(asked: Asked) -> Answer | None:
        if not is_get(asked) or asked.range is None or asked.range[0] != CHUNK_BYTES:
            return None
        where = f"bytes {CHUNK_BYTES}-{2 * CHUNK_BYTES - 1}/{len(found.content)}"
        answer = partial_answer(found, CHUNK_BYTES, where, iter([b"2" * CHUNK_BYTES]))
        return Answer(206, {name: value for name, value in answer.headers.items() if "meta" not in name}, answer.body)

    lying.lie = dropping
    assert error_of((node.checkpoints / "bad/file").read_bytes) == errno.EIO
    still_serves(node)


# --- sweeps -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("lying-store")
def test_a_listing_that_begins_again_and_again_ends_a_sweep(node: Node, lying: LyingS3) -> None:
    """The daemon would list for ever, and keep all of it in memory."""
    keys = {f"checkpoints/bad/{number}": Planted(GOOD) for number in range(1000)}
    lying.objects.update(keys)
    lying.lie = lambda asked: page(keys, following="x") if is_list_of_bad(asked) and "delimiter" not in asked.query else None
    with node.client() as client, pytest.raises(Exception, match="same page"):
        client.checkpoints(str(node.checkpoints / "bad"))
    still_serves(node)
