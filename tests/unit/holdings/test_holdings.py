"""What a node holds: counted alike from the index and from what changes; and reports, which may be a stranger's."""

from __future__ import annotations

import gzip
import os
import random
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import StatefulOperator, StateStore
from holdfast.config import HoldingsSection
from holdfast.holdings.held_stores import HeldStore, HeldStores, Place
from holdfast.holdings.identity import identity_of_host
from holdfast.holdings.report import (
    LARGEST_BYTES,
    BadReportError,
    NodeReport,
    Partition,
    QueryState,
    Standing,
    StoreState,
    decoded,
    encoded,
    held_of,
)
from holdfast.index import CachedName, Entry, EntryState, Index
from holdfast.store import Tree
from holdfast.system.file_id import FileId

UUID = b"01234567-0123-0123-0123-0123456789ab"
NAMES = [
    b"checkpoints/q/state/0/0/1.zip",
    b"checkpoints/q/state/0/0/2.changelog",
    b"checkpoints/q/state/0/0/3_%s.changelog" % UUID,
    b"checkpoints/q/state/0/0/SSTs/000008-%s.sst" % UUID,
    b"checkpoints/q/state/0/1/left-keyToNumValues/2.delta",
    b"checkpoints/q/state/0/1/left-keyToNumValues/7.delta",
    b"checkpoints/q/state/0/1/1.zip",
    b"checkpoints/q/state/0/1/_metadata/schema",
    b"checkpoints/q/commits/1",
    b"blobs/deep/er/state/3/4/5.snapshot",
]


class Copies:
    """Files in a tree with their entries, and what follows them."""

    def __init__(self, directory: Path, index: Index) -> None:
        self.directory, self.index = directory, index
        self.tree = Tree(os.open(directory, os.O_RDONLY))
        self.held = self.follower()

    def follower(self) -> HeldStores:
        return HeldStores(self.index.entries, self.tree, FORMATS, ["checkpoints", "blobs"])

    def write(
        self, name: bytes, size_bytes: int, state: EntryState = EntryState.CLEAN, *, on_probation: bool = False
    ) -> None:
        path = self.directory / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        entry = Entry(state, size_bytes, 0, 0, names=[CachedName(name, "e")], on_probation=on_probation)
        self.index.entries.put(FileId(path.stat().st_ino), entry)

    def remove(self, name: bytes) -> None:
        path = self.directory / os.fsdecode(name)
        if path.exists():
            self.index.entries.discard(FileId(path.stat().st_ino))
            path.unlink()

    def close(self) -> None:
        os.close(self.tree.root_fd)


@pytest.fixture
def copies(tmp_path: Path, index: Index) -> Iterator[Copies]:
    directory = tmp_path / "tree"
    directory.mkdir()
    made = Copies(directory, index)
    yield made
    made.close()


async def test_clean_files_count_for_the_store_that_their_names_tell(copies: Copies) -> None:
    for number, name in enumerate(NAMES):
        copies.write(name, 10**number)
    copies.write(b"checkpoints/q/state/0/0/9.changelog", 5, EntryState.DIRTY)
    q = b"q"
    assert dict(await copies.held.now()) == {
        Place("checkpoints", StateStore(q, 0, 0, b"default")): HeldStore(3, 1111, 3),
        Place("checkpoints", StateStore(q, 0, 1, b"left-keyToNumValues")): HeldStore(7, 110_000, 7),
        Place("checkpoints", StateStore(q, 0, 1, b"default")): HeldStore(1, 1_000_000, 1),
        Place("blobs", StateStore(b"deep/er", 3, 4, b"default")): HeldStore(5, 10**9, 5),
    }


async def test_what_was_only_fetched_is_a_copy_until_a_version_is_written_here(copies: Copies) -> None:
    place = Place("checkpoints", StateStore(b"q", 0, 0, b"default"))
    copies.write(NAMES[0], 1, on_probation=True)
    copies.write(NAMES[3], 1, on_probation=True)
    assert await copies.held.now() == {place: HeldStore(1, 2, 0)}
    copies.write(NAMES[2], 1)
    assert await copies.held.now() == {place: HeldStore(3, 3, 3)}
    copies.write(b"checkpoints/q/state/0/0/4.changelog", 1, on_probation=True)
    assert await copies.held.now() == {place: HeldStore(4, 4, 3)}, "it runs elsewhere again"
    assert await copies.follower().now() == {place: HeldStore(4, 4, 3)}


async def test_an_unchanged_count_is_the_same_object(copies: Copies) -> None:
    copies.write(NAMES[0], 1)
    first = await copies.held.now()
    assert await copies.held.now() is first
    copies.write(NAMES[8], 1)
    assert await copies.held.now() == first
    copies.remove(NAMES[0])
    assert await copies.held.now() == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from([None, *EntryState]), st.integers(0, 100), st.booleans(), st.booleans()
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_following_changes_comes_to_what_counting_anew_does(
    steps: list[tuple[bytes, EntryState | None, int, bool, bool]], copies: Copies
) -> None:
    for name in NAMES:
        copies.remove(name)
    for name, state, size_bytes, was_fetched, looks in steps:
        copies.remove(name)
        if state is not None:
            copies.write(name, size_bytes, state, on_probation=was_fetched)
        if looks:
            await copies.held.now()
    assert await copies.held.now() == await copies.follower().now()


async def test_too_many_changes_are_counted_anew(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.holdings.held_stores._MOST_CHANGES", 2)
    held = copies.follower()
    await held.now()
    for name in NAMES[:4]:
        copies.write(name, 7)
    assert await held.now() == {Place("checkpoints", StateStore(b"q", 0, 0, b"default")): HeldStore(3, 28, 3)}


# --- reports ----------------------------------------------------------------------------------------------------------

REPORT = NodeReport(
    node="node1",
    hosts=["node1", "192.0.2.7", "fe80::1"],
    cores=8,
    rack="eu-west-1a",
    standbys=1,
    queries=[QueryState("team/q", [StoreState(0, 1, "default", 7, 12345), StoreState(0, 2, "default", 6, 1, True, 9)])],
)


def test_a_report_is_read_as_it_was_written() -> None:
    assert decoded(encoded(REPORT)) == REPORT
    assert encoded(REPORT) == encoded(REPORT)


def test_versions_side_by_side_read_each_others_reports() -> None:
    before = msgspec.to_builtins(REPORT)
    del before["rack"], before["standbys"], before["health"]
    before["queries"][0]["stores"] = [[0, 1, "default", 7, 12345]]
    assert decoded(gzip.compress(msgspec.json.encode(before))).queries == [
        QueryState("team/q", [StoreState(0, 1, "default", 7, 12345, False, None)])
    ]
    before["queries"][0]["stores"][0] += [True, 17, "what a later version adds"]
    assert decoded(gzip.compress(msgspec.json.encode({**before, "also": 1}))).queries == [
        QueryState("team/q", [StoreState(0, 1, "default", 7, 12345, True, 17)])
    ]


def test_a_standby_tells_what_it_has_yet_to_fetch() -> None:
    held = {
        Place("c", StateStore(b"q", 0, partition, b"default")): HeldStore(7, 100, own_version)
        for partition, own_version in enumerate([7, 6, 6])
    }
    standing = Standing(1, {Partition("q", 0): 50, Partition("q", 1): 60})
    assert held_of(held, "c", standing).queries == [
        QueryState(
            "q",
            [
                StoreState(0, 0, "default", 7, 100, is_copy=False, missing_bytes=None),
                StoreState(0, 1, "default", 7, 100, is_copy=True, missing_bytes=60),
                StoreState(0, 2, "default", 7, 100, is_copy=True, missing_bytes=None),
            ],
        )
    ]


def test_a_report_of_two_thousand_partitions_is_small() -> None:
    held = {
        Place("checkpoints", StateStore(b"team/flights", operator, partition, b"default")): HeldStore(4711, 123_456_789)
        for operator in range(2)
        for partition in range(2000)
    }
    queries = held_of(held, "checkpoints").queries
    assert [len(query.stores) for query in queries] == [4000]
    assert len(encoded(NodeReport(node="n", queries=queries))) < 20_000


def test_of_too_many_stores_the_largest_are_told() -> None:
    held = {Place("c", StateStore(b"q", 0, partition, b"default")): HeldStore(1, partition) for partition in range(10)}
    found = held_of(held, "c", most=3)
    assert [state.partition for state in found.queries[0].stores] == [7, 8, 9]
    assert found.dropped == 7


def test_what_a_reader_would_refuse_is_left_out_and_the_rest_is_told() -> None:
    refused = [
        StateStore("a\x85b".encode(), 0, 0, b"default"),
        StateStore(b"a\x1bb", 0, 0, b"default"),
        StateStore(b"a\xff", 0, 0, b"default"),
        StateStore(b"a//b", 0, 0, b"default"),
        StateStore(b"a" * 4097, 0, 0, b"default"),
        StateStore(b"q", 0, 1, "a\x85b".encode()),
        StateStore(b"q", 0, 1, b""),
        StateStore(b"q", 2**31, 1, b"default"),
    ]
    stores = [StateStore(b"q", 0, 0, b"default"), *refused]
    found = held_of({Place("c", store): HeldStore(1, 100 - number, 1) for number, store in enumerate(stores)}, "c")
    assert found.queries == [QueryState("q", [StoreState(0, 0, "default", 1, 100)])]
    assert found.dropped == len(refused)
    assert decoded(encoded(NodeReport(node="n", queries=found.queries))).queries == found.queries


def test_stores_that_are_left_out_take_no_room_from_others() -> None:
    held = {
        Place("c", StateStore("a\x85b".encode(), 0, 0, b"default")): HeldStore(1, 1000),
        Place("c", StateStore(b"q", 0, 0, b"default")): HeldStore(1, 1),
    }
    assert [query.location for query in held_of(held, "c", most=1).queries] == ["q"]


def test_of_locations_that_do_not_fit_those_with_the_largest_stores_are_told() -> None:
    chance = random.Random(7)
    locations = ["".join(chance.choices(string.ascii_letters + string.digits, k=4000)).encode() for _ in range(1000)]
    held = {Place("c", StateStore(name, 0, 0, b"default")): HeldStore(1, size) for size, name in enumerate(locations)}
    held[Place("c", StateStore(b"q", 0, 0, b"default"))] = HeldStore(1, 10**9)
    found = held_of(held, "c")
    told = {query.location.encode() for query in found.queries}
    assert told == {b"q", *locations[found.dropped :]}, "the smallest are missing, and nothing else"
    data = encoded(NodeReport(node="n", queries=found.queries))
    assert len(data) <= LARGEST_BYTES
    assert decoded(data).queries == found.queries
    assert 400 < len(told) < 500, "there was room for as many"


def test_room_counts_the_report_as_it_is_written() -> None:
    held = {Place("c", StateStore(b"q", 0, partition, b"default")): HeldStore(1, 5) for partition in range(3)}
    whole = held_of(held, "c").queries
    assert held_of(held, "c", most_bytes=len(msgspec.json.encode(whole))).queries == whole
    backwards = dict(reversed(held.items()))
    for some in (held, backwards):
        found = held_of(some, "c", most_bytes=len(msgspec.json.encode(whole)) - 1)
        assert [state.partition for state in found.queries[0].stores] == [0, 1], "whatever order they were found in"
        assert found.dropped == 1


def as_written(**changes: object) -> bytes:
    return gzip.compress(msgspec.json.encode({**msgspec.to_builtins(REPORT), **changes}))


def query(location: str = "q", *state: object) -> list[object]:
    return [{"location": location, "stores": [list(state or (0, 0, "default", 1, 1))]}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        gzip.compress(b"{}"),
        gzip.compress(b"\xff"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(bytes(40 * 2**20)),
        encoded(REPORT)[:-1],
        as_written(format=2),
        as_written(node="../node"),
        as_written(node="a/b"),
        as_written(node=""),
        as_written(node="a\n"),
        as_written(hosts=["-rf"]),
        as_written(hosts=["a b"]),
        as_written(hosts=["a\n"]),
        as_written(hosts=["h"] * 65),
        as_written(cores=-1),
        as_written(rack="../a"),
        as_written(rack="a\x1b"),
        as_written(standbys=-1),
        as_written(standbys=5),
        as_written(queries=query("q", 0, 0, "default", 1, 1, 2)),
        as_written(queries=query("q", 0, 0, "default", 1, 1, True, -1)),
        as_written(cores=2**31),
        as_written(queries=query("../q")),
        as_written(queries=query("q//r")),
        as_written(queries=query("/q")),
        as_written(queries=query("q\x1b[2J")),
        as_written(queries=query("q", -1, 0, "default", 1, 1)),
        as_written(queries=query("q", 2**31, 0, "default", 1, 1)),
        as_written(queries=query("q", 0, 0, "a/b", 1, 1)),
        as_written(queries=query("q", 0, 0, "", 1, 1)),
        as_written(queries=query("q", 0, 0, "default", 2**63, 1)),
        as_written(queries=query("q", 0, 0, "default", 1, -1)),
        as_written(queries=query("q\x85")),
        as_written(queries=[{"location": "q", "stores": [[0, 0, "default", 1, 1], [0, 0, "default", 2, 3]]}]),
        as_written(queries=[*query("q"), *query("q", 0, 1, "default", 1, 1)]),
        as_written(queries=[{"location": "q", "stores": []}] * 2),
        as_written(also="x" * (4 * 2**20)),
    ],
)
def test_what_a_stranger_planted_is_no_report(data: bytes) -> None:
    with pytest.raises(BadReportError):
        decoded(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for planted in (data, gzip.compress(data)):
        with pytest.raises(BadReportError):
            decoded(planted)


def test_more_stores_than_there_can_be_are_no_report() -> None:
    stores = [StoreState(0, partition, "default", 1, 1) for partition in range(25_000)]
    report = NodeReport(node="n", queries=[QueryState("q", stores), QueryState("r", stores)])
    assert decoded(encoded(report)) == report
    report.queries.append(QueryState("s", stores[:1]))
    with pytest.raises(BadReportError, match="more stores"):
        decoded(encoded(report))


def test_the_largest_report_of_a_node_is_read() -> None:
    stores = [StoreState(0, each, "left-keyToNumValues", 471_100, 10**9 + each) for each in range(50_000)]
    report = NodeReport(node="n", queries=[QueryState("team/flights", stores)])
    assert decoded(encoded(report)) == report
    assert len(encoded(report)) < LARGEST_BYTES


def test_a_node_is_known_by_configured_names_first() -> None:
    identity = identity_of_host(HoldingsSection(node="rack-7", hosts=["127.0.0.1", "alias"]))
    assert identity.node == "rack-7"
    assert identity.hosts[:2] == ("127.0.0.1", "alias")
    assert "localhost" not in identity_of_host(HoldingsSection()).hosts


# --- a query's own metadata -------------------------------------------------------------------------------------------

METADATA = b"""v1
{"operatorInfo":{"operatorId":3,"operatorName":"symmetricHashJoin"},"stateStoreInfo":[
{"storeName":"left-keyToNumValues","numColsPrefixKey":0,"numPartitions":12},
{"storeName":"right-keyToNumValues","numColsPrefixKey":0,"numPartitions":12}]}"""


def test_an_operators_metadata_tells_its_stores() -> None:
    expected = StatefulOperator(3, 12, (b"left-keyToNumValues", b"right-keyToNumValues"))
    assert FORMATS.stateful_operator(b"state/3/_metadata/metadata", METADATA) == expected
    assert FORMATS.stateful_operator(b"state/3/_metadata/v2/0", METADATA.replace(b"v1", b"v2")) == expected
    assert FORMATS.stateful_operator(b"state/3/0/1.zip", METADATA) is None


@pytest.mark.parametrize("data", [b"", b"v1", b"v1\n{}", b"v1\n\xff", METADATA.replace(b"12", b"-1"), METADATA[:-3]])
def test_damaged_metadata_tells_nothing(data: bytes) -> None:
    assert FORMATS.stateful_operator(b"state/3/_metadata/metadata", data) is None
