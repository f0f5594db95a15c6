"""Manifests that somebody plants to stop sweeps, or the daemon: refused soon and in little memory, and nothing goes for it.

``tests/unit/checkpoints/test_hostile_manifests.py`` has zips, snapshots, changelogs and metadata that contradict themselves.
"""

from __future__ import annotations

import io
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from holdfast.checkpoints.formats.flink.metadata import MAGIC, read_flink_metadata
from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast.checkpoints.formats.own.writer import Job
from holdfast.checkpoints.formats.spark.manifests import COMMIT, OFFSETS
from holdfast.checkpoints.manifests import ManifestKind, Trouble, Unreadable
from holdfast.errors import UnreadableManifestError
from tests.conftest import NodeFactory
from tests.security.test_hostile_names import over, still_serves
from tests.support.checkpoints import hostile_zips
from tests.support.checkpoints.limited_reader import LimitedReader
from tests.support.daemons.node import wait_until
from tests.support.stores.lying_s3 import Asked, LyingS3, Planted, digested

_LONGEST_SECONDS = 20.0
LIMIT_BYTES = 200 * 2**20
LARGEST_LOG_BYTES = 32 * 2**20


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedReader]:
    with LimitedReader(tmp_path_factory.mktemp("store"), LIMIT_BYTES) as process:
        yield process


def filled(head: bytes, item: bytes, tail: bytes = b"") -> bytes:
    """Return a log entry of the largest size that is read, full of ``item``."""
    return head + item * ((LARGEST_LOG_BYTES - len(head) - len(tail)) // len(item)) + tail


LOGS: dict[str, tuple[ManifestKind, Callable[[], bytes], str]] = {
    "a commit of eleven million partitions without a store": (
        COMMIT,
        lambda: filled(b'v2\n{"stateUniqueIds":{"0":[[]', b",[]", b"]}}"),
        Trouble.TOO_LARGE.value,
    ),
    "a commit in which operators come again and again": (
        COMMIT,
        lambda: filled(b'v2\n{"stateUniqueIds":{"0":[]', b',"0":[]', b"}}"),
        Trouble.TOO_LARGE.value,
    ),
    "a commit with other fields": (COMMIT, lambda: filled(b'v2\n{"a":0', b',"a":0', b"}"), Trouble.TOO_LARGE.value),
    "a commit of lists in lists": (COMMIT, lambda: b'v2\n{"a":' + b"[" * 500_000, Trouble.TOO_DEEP.value),
    "a commit with a number of 30 million digits": (COMMIT, lambda: filled(b'v2\n{"a":1', b"0", b"}"), "read"),
    "a commit with an operator of a million digits": (
        COMMIT,
        lambda: b'v2\n{"stateUniqueIds":{"' + b"1" * 1_000_000 + b'":[]}}',
        Trouble.MALFORMED.value,
    ),
    "a commit with half of a character": (
        COMMIT,
        lambda: rb"v2" + b"\n" + rb'{"stateUniqueIds":{"0":[["\ud800"]]}}',
        Trouble.MALFORMED.value,
    ),
    "offsets of millions of settings": (
        OFFSETS,
        lambda: filled(b'v1\n{"conf":{"":""', b',"":""', b"}}"),
        Trouble.TOO_LARGE.value,
    ),
    "offsets of 30 million sources": (OFFSETS, lambda: filled(b"v1\n{}", b"\n"), "read"),
    "offsets of two million sources with logs": (
        OFFSETS,
        lambda: filled(b"v1\n{}", b'\n{"logOffset":1}'),
        Trouble.TOO_LARGE.value,
    ),
    "as many stores as there may be": (
        COMMIT,
        lambda: b'v2\n{"stateUniqueIds":{"0":[' + b",".join([b'["%036d"]' % 0] * 260_000) + b"]}}",
        "read",
    ),
}


@pytest.mark.promise("manifests")
@pytest.mark.parametrize("name", LOGS)
def test_a_log_entry_takes_little_memory_whatever_is_in_it(reader: LimitedReader, name: str) -> None:
    """One commit of 32 MiB took gigabytes in the daemon, at every sweep: the node's daemon would be killed for memory."""
    kind, content, expected = LOGS[name]
    assert reader.read(kind, content()) == expected


@pytest.mark.promise("manifests")
@pytest.mark.parametrize(
    "name",
    ["exclusive/../../../victim", "../../victim", "VICTIM", "exclusive//victim", "exclusive/./victim", "exclusive/", "a\0b"],
)
def test_metadata_that_names_files_elsewhere_neither_restores_nor_deletes_them(tmp_path: Path, name: str) -> None:
    """Who may write to the bucket would delete any file of the job's user when it drops a checkpoint, or link it in."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"of the job's user")
    job = Job(tmp_path / "work", "job", tmp_path / "checkpoints")
    checkpoint = job.begin()
    checkpoint.add_exclusive(victim, "copy")
    checkpoint.commit()
    file = OwnFile(name.replace("VICTIM", str(victim)), 17, "0" * 32, "copy")
    metadata = job.directory / f"chk-{checkpoint.id}" / "_metadata"
    metadata.write_bytes(own_metadata(OwnMetadata(checkpoint.id, (file,))))
    again = Job(tmp_path / "work", "job", tmp_path / "checkpoints")
    for use in (again.all, lambda: again.drop(checkpoint.id)):
        with pytest.raises(UnreadableManifestError, match="metadata names"):
            use()
    assert victim.read_bytes() == b"of the job's user"


def test_a_snapshot_that_names_thousands_of_files_has_few_of_them_fetched_at_once(
    make_node: NodeFactory, lying: LyingS3
) -> None:
    """Each fetch holds a descriptor and memory: whoever opens a planted snapshot would take both from all others."""
    names = [f"{number:06d}-00000000-0000-0000-0000-000000000000.sst" for number in range(2000)]
    state = "checkpoints/query/state/0/0"
    lying.objects |= {f"{state}/SSTs/{name}": Planted(b"x") for name in names}
    lying.objects[f"{state}/1.zip"] = digested(hostile_zips.snapshot_of(names))
    go_on = threading.Event()

    def waiting(asked: Asked) -> None:
        if asked.method == "GET" and "/SSTs/" in asked.key:
            go_on.wait(_LONGEST_SECONDS)

    lying.lie = waiting
    node = over(make_node, lying)
    try:
        (node.checkpoints / "query/state/0/0/1.zip").read_bytes()
        wait_until(lambda: any("/SSTs/" in asked.key for asked in list(lying.asked)))
        assert len(list((node.store / "fetching").iterdir())) <= 100
    finally:
        go_on.set()
    copies = node.store / "tree/checkpoints/query/state/0/0/SSTs"
    wait_until(lambda: copies.is_dir() and len(os.listdir(copies)) == len(names), 300)  # each is a request
    still_serves(node)


class Bomb(io.RawIOBase):
    """A stream of ``size_bytes`` that begins with ``head`` and goes on with zeros; it takes no memory."""

    def __init__(self, head: bytes, size_bytes: int) -> None:
        super().__init__()
        self._head = head
        self._left_bytes = size_bytes

    def read(self, size: int = -1, /) -> bytes:
        size = min(size, self._left_bytes) if size >= 0 else self._left_bytes
        found, self._head = self._head[:size], self._head[size:]
        self._left_bytes -= size
        return found + bytes(size - len(found))


START = MAGIC + struct.pack(">iqi", 3, 1, 0)
OPERATOR = bytes(16 + 4 + 4) + b"\0"
SUBTASK = struct.pack(">iii", 0, 0, 0) + b"\0\0"
MOST = 2**30 // 32
FLINK = {
    "operators": START + struct.pack(">i", MOST),
    "subtasks": START + struct.pack(">i", 1) + OPERATOR + struct.pack(">i", MOST),
    "channels": START + struct.pack(">i", 1) + OPERATOR + struct.pack(">i", 1) + SUBTASK + struct.pack(">i", MOST),
    "master states": MAGIC + struct.pack(">iqi", 3, 1, MOST),
}


@pytest.mark.promise("manifests")
@pytest.mark.parametrize("name", FLINK)
def test_a_gigabyte_of_empty_handles_is_refused_before_it_is_read(name: str) -> None:
    """A ``_metadata`` of zeros kept a thread of the daemon busy for five minutes or more at every sweep of the store."""
    size_bytes = 2**30
    found = read_flink_metadata(cast(BinaryIO, Bomb(FLINK[name], size_bytes)), size_bytes)
    assert isinstance(found, Unreadable)
    assert found.trouble in (Trouble.TOO_LARGE, Trouble.MALFORMED)
    assert name != "channels" or found.trouble is Trouble.TOO_LARGE


def test_a_properties_object_of_a_gigabyte_is_refused() -> None:
    """The serialized object at the end of Flink's metadata would be parsed byte by byte, for minutes."""
    head = MAGIC + struct.pack(">iqi", 4, 1, 0) + struct.pack(">i", 0)
    found = read_flink_metadata(cast(BinaryIO, Bomb(head + b"\xac\xed\x00\x05sr", 2**30)), 2**30)
    assert isinstance(found, Unreadable)
    assert found.trouble is Trouble.TRAILING
