"""Flink's metadata is read as Flink reads it, or not at all: then everything stays, and the reason is told."""

from __future__ import annotations

import io
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.checkpoints.formats.flink import FlinkMetadata, read_flink_metadata
from holdfast.checkpoints.manifests import Trouble, Unreadable
from tests.support.checkpoints import samples
from tests.support.flink import metadata as write

SAMPLES = [name for name in samples.names() if name.startswith("flink-")]
GOLDEN = [
    (name, path) for name in SAMPLES for path, file in sorted(samples.sample(name).files.items()) if file.content is not None
]
U = b"0a1b2c3d-4e5f-6789-abcd-ef0123456789"
URI = b"s3://bucket/checkpoints/" + b"a" * 32 + b"/shared/" + U
OTHER = b"file:/mnt/holdfast/checkpoints/b/shared/x"
LIMIT_BYTES = 4 * 2**20


def read(data: bytes) -> FlinkMetadata | Unreadable:
    return read_flink_metadata(io.BytesIO(data), len(data))


def references(data: bytes) -> set[str]:
    result = read(data)
    assert isinstance(result, FlinkMetadata), result
    return {f"{reference.kind.value} {reference.path.decode()}" for reference in result.references}


def trouble(data: bytes) -> Trouble:
    result = read(data)
    assert isinstance(result, Unreadable), result
    assert result.detail
    return result.trouble


def golden(name: str, path: bytes) -> bytes:
    content = samples.sample(name).files[path].content
    assert content is not None
    return content


def keyed(handle: bytes) -> bytes:
    return write.metadata([write.operator([write.subtask(handle)])])


# --- what Flink wrote -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "path"), GOLDEN)
def test_the_same_references_are_found_that_flink_finds(name: str, path: bytes) -> None:
    if name == "flink-versions":  # one checkpoint in all versions
        (expected,) = samples.sample(name).expected.values() or [set()]
    else:
        expected = samples.sample(name).expected[path]
    result = read(golden(name, path))
    assert isinstance(result, FlinkMetadata)
    assert references(golden(name, path)) | {f"checkpoint {result.checkpoint}"} == expected


def test_the_samples_have_all_that_this_flink_writes() -> None:
    kinds = {line.split()[0] for name in SAMPLES for lines in samples.sample(name).expected.values() for line in lines}
    assert kinds == {"checkpoint", "file", "segment", "directory", "relative"}
    versions = {result.version for name, path in GOLDEN if isinstance(result := read(golden(name, path)), FlinkMetadata)}
    assert versions == {3, 4, 5, 6}


# --- every tag and version --------------------------------------------------------------------------------------------

FILE = f"file {URI.decode()}"
HANDLES = {
    "no state": (write.NULL, set()),
    "key groups": (write.key_groups(write.file(URI), 3), {FILE}),
    "key groups with id": (write.key_groups(write.file(URI), 12), {FILE}),
    "key groups of a savepoint": (write.key_groups(write.relative(b"part"), 7), {"relative part"}),
    "incremental": (write.incremental(write.file(URI), [write.file(OTHER)], tag=5), {FILE, f"file {OTHER.decode()}"}),
    "incremental with id": (
        write.incremental(write.inline(b"m"), [write.file(URI)], [write.relative(b"p")]),
        {FILE, "relative p"},
    ),
    "segments": (write.incremental(write.EMPTY_SEGMENT, [write.segment(URI)]), {f"segment {URI.decode()}"}),
    "nested key groups": (write.key_groups(write.key_groups(write.file(URI), 3)), {FILE}),
    "changelog": (write.changelog([write.incremental(write.file(URI))], [write.changelog_inline([b"a", b""])], 8), {FILE}),
    "changelog with id": (write.changelog([], [write.changelog_files([write.file(URI)])]), {FILE}),
    "changelog files": (write.changelog_files([write.file(URI), write.relative(b"p")], 10), {FILE, "relative p"}),
    "inline changes": (write.changelog_inline([b"x" * 100_000]), set()),
}


@pytest.mark.parametrize("name", HANDLES)
def test_every_keyed_handle(name: str) -> None:
    handle, expected = HANDLES[name]
    assert references(keyed(handle)) == expected


def test_operator_state_names_its_file_and_the_directories_of_file_merging() -> None:
    plain = write.subtask(operator=write.operator_state(write.relative(b"p")))
    merged = write.subtask(operator=write.operator_state(write.segment(OTHER), (URI, b"file:/shared/job_a_op_b_0_2")))
    empty = write.subtask(operator=write.operator_state(write.EMPTY_SEGMENT, (URI, URI)))
    assert references(write.metadata([write.operator([plain, merged, empty])])) == {
        "relative p",
        f"segment {OTHER.decode()}",
        f"directory {URI.decode()}",
        "directory file:/shared/job_a_op_b_0_2",
    }


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_in_flight_data_of_version_6(kind: int) -> None:
    subtask = write.subtask(
        inputs=[write.channel(write.relative(b"in"), kind)], results=[write.channel(write.file(URI), kind)]
    )
    assert references(write.metadata([write.operator([subtask])])) == {"relative in", FILE}


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_all_versions(version: int) -> None:
    channels = [] if version == 2 else [write.channel(write.relative(b"in"), 1 if version == 6 else None)]
    subtask = write.subtask(write.key_groups(write.file(URI)), inputs=channels, version=version)
    data = write.metadata([write.operator([subtask], version=version)], 41, version, masters=[b"some master state"])
    assert references(data) == {FILE, "relative in"} - ({"relative in"} if version == 2 else set())
    result = read(data)
    assert isinstance(result, FlinkMetadata)
    assert (result.version, result.checkpoint) == (version, 41)


def test_a_coordinator_finished_subtasks_and_finished_operators() -> None:
    running = write.operator([write.subtask(write.key_groups(write.file(URI)))], write.inline(b"coordinator"), finished=2)
    assert references(write.metadata([running, write.finished_operator()])) == {FILE}


def test_names_in_modified_utf8() -> None:
    data = keyed(write.key_groups(write.relative("ä".encode() + b"\xc0\x80" + b"\xed\xa0\xbd\xed\xb8\x80")))
    assert references(data) == {"relative ä\0😀"}


# --- what is not read: everything stays -------------------------------------------------------------------------------

BROKEN = {
    "empty": (b"", Trouble.TRUNCATED),
    "foreign": (b"PAR1 and so on", Trouble.FOREIGN),
    "version 0": (write.metadata([], version=0), Trouble.UNKNOWN_VERSION),
    "version 1, that no Flink since 1.3 reads": (write.metadata([], version=1), Trouble.UNKNOWN_VERSION),
    "version 7": (write.metadata([], version=7), Trouble.UNKNOWN_VERSION),
    "a negative id": (write.metadata([], checkpoint=-1), Trouble.MALFORMED),
    "a stream tag": (keyed(write.key_groups(b"\x12")), Trouble.UNKNOWN_TAG),
    "a keyed tag as a stream's": (keyed(write.key_groups(write.incremental(write.NULL))), Trouble.UNKNOWN_TAG),
    "a keyed tag": (keyed(b"\x0f"), Trouble.UNKNOWN_TAG),
    "an operator tag": (write.metadata([write.operator([write.subtask(operator=b"\x02")])]), Trouble.UNKNOWN_TAG),
    "a channel tag": (write.metadata([write.operator([write.subtask(inputs=[b"\x05"])])]), Trouble.UNKNOWN_TAG),
    "bytes behind it": (write.metadata([]) + b"\0", Trouble.TRAILING),
    "bytes behind it in version 3": (write.metadata([], version=3) + b"\0", Trouble.TRAILING),
    "two billion operators": (write.metadata([])[:20] + write.int32(2**31 - 1), Trouble.TRUNCATED),
    "fewer than no operators": (write.metadata([])[:20] + write.int32(-1), Trouble.MALFORMED),
    "fewer than no offsets": (keyed(b"\x03" + write.int32(0) + write.int32(-5)), Trouble.MALFORMED),
    "two billion bytes inline": (
        keyed(b"\x03" + write.int32(0) * 2 + b"\x01" + write.text(b"") + write.int32(2**31 - 1)),
        Trouble.TRUNCATED,
    ),
    "a file without a name": (keyed(write.key_groups(write.file(b""))), Trouble.MALFORMED),
    "a directory for a file": (keyed(write.key_groups(write.file(b"/"))), Trouble.MALFORMED),
    "no UTF-8": (keyed(write.key_groups(write.file(b"\xff"))), Trouble.MALFORMED),
    "half a surrogate pair": (keyed(write.key_groups(write.file(b"\xed\xa0\xbd"))), Trouble.MALFORMED),
    "no properties": (write.metadata([])[: -len(write.PROPERTIES)] + b"plain text", Trouble.MALFORMED),
    "no master state": (write.metadata([])[:16] + write.int32(1) + b"12345678", Trouble.MALFORMED),
    "state of Flink 1.1": (
        write.metadata([write.operator([write.int64(-1) + write.int32(1)], version=2)], version=2),
        Trouble.UNKNOWN_TAG,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_read_says_why(name: str) -> None:
    data, expected = BROKEN[name]
    assert trouble(data) is expected


@pytest.mark.parametrize("name", ["flink-versions", "flink-merging", "flink-changelog", "flink-unaligned", "flink-finished"])
def test_no_beginning_of_a_metadata_passes_for_a_whole_one(name: str) -> None:
    _, path = next(each for each in GOLDEN if each[0] == name)
    data = golden(name, path)
    step = max(1, len(data) // 500)
    for end in [*range(0, len(data), step), *range(len(data) - 700, len(data))]:
        assert isinstance(read(data[:end]), Unreadable), end


def test_a_stream_that_is_shorter_than_listed_is_truncated() -> None:
    data = keyed(write.key_groups(write.file(URI)))
    result = read_flink_metadata(io.BytesIO(data[:-3]), len(data))
    assert isinstance(result, Unreadable)
    assert result.trouble is Trouble.TRUNCATED


def test_what_follows_the_announced_length_is_not_read() -> None:
    data = keyed(write.key_groups(write.file(URI)))
    stream = io.BytesIO(data + b"the next object")
    assert isinstance(read_flink_metadata(stream, len(data)), FlinkMetadata)
    assert stream.read() == b"the next object"


# --- hostile ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x08" + write.int32(0) * 2 + write.int64(0) + write.int32(1),  # a changelog in a changelog in …
        b"\x03" + write.int32(0) * 2,  # key groups in key groups in …
    ],
)
def test_nesting_without_end_is_refused(bomb: bytes) -> None:
    assert trouble(write.metadata([])[:20] + write.int32(1) + keyed(bomb * 100_000)[24:]) is Trouble.TOO_DEEP


@pytest.mark.parametrize(
    "bomb",
    [
        "aced0005" + "7372000150" + "0000000000000002" + "02" + "0000" + "78" + "71007e0000",  # its own ancestor
        "aced000573" + ("72000150" + "0000000000000002" + "02" + "0000" + "78") * 100,  # a hundred ancestors
        "aced0005" + ("7372000150" + "0000000000000002" + "02" + "0001" + "4c000161" + "740001" + "41" + "7870") * 100,
    ],
)
def test_properties_that_nest_without_end_are_refused(bomb: str) -> None:
    data = write.metadata([])[: -len(write.PROPERTIES)] + bytes.fromhex(bomb)
    assert trouble(data) is Trouble.TOO_DEEP


def test_inline_state_takes_no_memory() -> None:
    class Zeros:
        def __init__(self, head: bytes) -> None:
            self._head = io.BytesIO(head)

        def read(self, size: int, /) -> bytes:
            return self._head.read(size) or bytes(size)

    head = keyed(write.key_groups(b"\x01" + write.text(b"") + write.int32(500 * 2**20)))[: -len(write.PROPERTIES)]
    tracemalloc.start()
    result = read_flink_metadata(Zeros(head), 600 * 2**20)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(result, Unreadable)  # it ends in zeros
    assert peak_bytes < LIMIT_BYTES


def test_a_file_of_a_terabyte_is_not_metadata() -> None:
    result = read_flink_metadata(io.BytesIO(b""), 2**40)
    assert isinstance(result, Unreadable)
    assert result.trouble is Trouble.TOO_LARGE


@given(st.sampled_from(GOLDEN), st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_metadata_is_read_or_refused_within_bounds(which: tuple[str, bytes], data: st.DataObject) -> None:
    content = bytearray(golden(*which))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(0, 8))
        content[at : at + length] = data.draw(st.binary(max_size=8))
    tracemalloc.start()
    result = read(bytes(content))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(result, FlinkMetadata | Unreadable)
    assert peak_bytes < LIMIT_BYTES


@given(st.binary(max_size=300), st.sampled_from([2, 3, 4, 5, 6]))
@settings(max_examples=300, deadline=None)
def test_noise_behind_a_good_beginning_is_read_or_refused(noise: bytes, version: int) -> None:
    assert isinstance(read(write.metadata([], version=version)[:16] + noise), FlinkMetadata | Unreadable)
