"""Which zone a directory lies in: every row of the table in architecture.md, and what lies deeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Durability
from holdfast.errors import ConfigurationError
from holdfast.zones import SKELETON, VOLATILE, Fallbacks, NameTable, WorkdirName, Zone, ZoneKind, ZoneMap, ZoneName, ZonePath

COMMIT, ASYNC = Durability.COMMIT, Durability.ASYNC


def zone_map(bases: list[bytes], **stores: Durability) -> ZoneMap:
    """The zones of ``stores``; working directories fall back to checkpoints and blobs, those of one role to others."""
    roles = {"team": Fallbacks("team_a", None), "alone": Fallbacks(None, None), "late": Fallbacks("blobs", "checkpoints")}
    return ZoneMap(stores, bases, lambda role: roles.get(role, Fallbacks("checkpoints", "blobs")))


@pytest.fixture
def zones() -> ZoneMap:
    return zone_map([b"work", b"spark"], checkpoints=COMMIT, blobs=ASYNC)


def zone_of(zones: ZoneMap, path: str) -> Zone:
    place = zones.place_of(path.encode())
    assert place is not None
    return place.zone


@pytest.mark.parametrize(
    ("path", "kind", "prefix", "remote", "durability", "digests"),
    [
        ("", ZoneKind.ROOT, "", None, None, False),
        ("work", ZoneKind.BASE, "work", None, None, False),
        ("spark", ZoneKind.BASE, "spark", None, None, False),
        ("work/worker_1", ZoneKind.PRIVATE, "work/worker_1", None, None, False),
        ("work/worker_1/tmp", ZoneKind.PRIVATE, "work/worker_1", None, None, False),
        ("work/worker_1/rocksdb/db", ZoneKind.PRIVATE, "work/worker_1", None, None, False),
        ("work/tm_a/slotAllocationSnapshots", ZoneKind.PRIVATE, "work/tm_a", None, None, False),
        ("work/tm_a/localState", ZoneKind.LOCAL_STATE, "work/tm_a/localState", "checkpoints", None, True),
        ("work/tm_a/localState/aid_1/jid_2", ZoneKind.LOCAL_STATE, "work/tm_a/localState", "checkpoints", None, True),
        ("spark/worker_1/blobStorage", ZoneKind.BLOB_STORAGE, "spark/worker_1/blobStorage", "blobs", ASYNC, True),
        ("spark/worker_1/blobStorage/no_job", ZoneKind.BLOB_STORAGE, "spark/worker_1/blobStorage", "blobs", ASYNC, True),
        ("checkpoints", ZoneKind.STORE, "checkpoints", "checkpoints", COMMIT, True),
        ("checkpoints/query/state/0/0", ZoneKind.STORE, "checkpoints", "checkpoints", COMMIT, True),
        ("blobs", ZoneKind.STORE, "blobs", "blobs", ASYNC, True),
        ("blobs/blobs/checkpoints", ZoneKind.STORE, "blobs", "blobs", ASYNC, True),
        # only directly in a working directory
        ("work/worker_1/tmp/localState", ZoneKind.PRIVATE, "work/worker_1", None, None, False),
        ("work/worker_1/tmp/tm_1/localState", ZoneKind.PRIVATE, "work/worker_1", None, None, False),
        ("work/plain/localState", ZoneKind.PRIVATE, "work/plain", None, None, False),
        ("work/tm_a/localState/blobStorage", ZoneKind.LOCAL_STATE, "work/tm_a/localState", "checkpoints", None, True),
        ("checkpoints/work/tm_1/localState", ZoneKind.STORE, "checkpoints", "checkpoints", COMMIT, True),
    ],
)
def test_the_table_of_zones(
    zones: ZoneMap,
    path: str,
    kind: ZoneKind,
    prefix: str,
    remote: str | None,
    durability: Durability | None,
    digests: bool,
) -> None:
    zone = zone_of(zones, path)
    assert zone == Zone(kind, prefix.encode(), remote, durability, digests)
    assert zone.is_store is (kind is ZoneKind.STORE)
    assert zone.sends is (durability is not None)


@pytest.mark.promise("zones-only")
@pytest.mark.parametrize("path", ["home", "home/x", "Checkpoints", "works", "checkpoint"])
def test_the_root_holds_zones_only(zones: ZoneMap, path: str) -> None:
    assert zones.place_of(path.encode()) is None


def test_a_zone_whose_durability_is_local_sends_nothing() -> None:
    zones = zone_map([b"work"], checkpoints=Durability.LOCAL, blobs=COMMIT)
    assert not zone_of(zones, "checkpoints/a").sends
    assert zone_of(zones, "work/tm_1/blobStorage").sends


def test_the_names_in_the_root(zones: ZoneMap) -> None:
    assert zones.top_names == [b"checkpoints", b"blobs", b"work", b"spark"]


@pytest.mark.parametrize(
    ("path", "remote", "durability"),
    [
        ("team_a", "team_a", ASYNC),
        ("work/worker_1/localState", "checkpoints", None),
        ("work/worker_1/blobStorage", "blobs", COMMIT),
        ("work/team_1/localState", "team_a", None),
        ("work/team_1/blobStorage", None, None),
        ("work/alone_1/localState", None, None),
        ("work/late_1/blobStorage", "checkpoints", ASYNC),
    ],
)
def test_a_role_falls_back_to_its_stores_with_their_durability(
    path: str, remote: str | None, durability: Durability | None
) -> None:
    zones = zone_map([b"work"], checkpoints=ASYNC, blobs=COMMIT, team_a=ASYNC)
    zone = zone_of(zones, path)
    assert (zone.remote, zone.durability) == (remote, durability)


def test_there_may_be_no_store() -> None:
    zones = ZoneMap({}, [b"work"], lambda _: Fallbacks(None, None))
    assert zones.top_names == [b"work"]
    assert not zone_of(zones, "work/tm_1/blobStorage").sends
    assert zones.place_of(b"checkpoints") is None


@pytest.mark.parametrize(
    ("path", "name", "key"),
    [
        ("checkpoints", "a", "a"),
        ("checkpoints/q/offsets", "5", "q/offsets/5"),
        ("work/tm_1/localState", "f", "f"),
        ("work/tm_1/localState/aid_1", "f", "aid_1/f"),
        ("work/tm_1/blobStorage/no_job", "blob", "no_job/blob"),
        ("work/tm_1", "f", "f"),
        ("", "work", "work"),
    ],
)
def test_keys_are_relative_to_the_zone(zones: ZoneMap, path: str, name: str, key: str) -> None:
    place = zones.place_of(path.encode())
    assert place is not None
    assert ZoneName(place, name.encode(), NameTable({}, {})).key == key.encode()
    assert place.child_path(name.encode()) == f"{path}/{name}".lstrip("/").encode()


@pytest.mark.parametrize(
    ("path", "fixed"),
    [
        ("", True),
        ("work", True),
        ("checkpoints", True),
        ("blobs", True),
        ("work/worker_1", True),
        ("work/worker_1/localState", True),
        ("work/worker_1/blobStorage", True),
        ("work/plain", False),
        ("work/worker_1/tmp", False),
        ("work/worker_1/localState/aid_1", False),
        ("checkpoints/query", False),
    ],
)
def test_roots_of_zones_and_working_directories_stay_where_they_are(zones: ZoneMap, path: str, fixed: bool) -> None:
    place = zones.place_of(path.encode())
    assert place is not None
    assert zones.is_fixed(place) is fixed


@given(
    st.lists(st.sampled_from([b"work", b"checkpoints", b"tm_1", b"plain", b"localState", b"blobStorage", b"x"]), max_size=6)
)
def test_a_path_leads_where_its_steps_lead(names: list[bytes]) -> None:
    zones = zone_map([b"work"], checkpoints=COMMIT, blobs=COMMIT)
    place: ZonePath | None = zones.root
    for name in names:
        place = zones.child(place, name) if place is not None else None
    found = zones.place_of(b"/".join(names))
    assert found == place
    if found is not None and names:
        assert found.path == b"/".join(names)
        assert found.path.startswith(found.zone.prefix)


# --- names of working directories -------------------------------------------------------------------------------------


def test_what_is_emptied_is_part_of_the_skeleton() -> None:
    assert set(VOLATILE) < set(SKELETON)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (b"worker_1", WorkdirName("worker", "1")),
        (b"tm_host:1234-0a1b2c", WorkdirName("tm", "host:1234-0a1b2c")),
        (b"jm_a_b", WorkdirName("jm", "a_b")),
        (b"worker__", WorkdirName("worker", "_")),
        (b"w_\xff", None),
        (b"worker", None),
        (b"worker_", None),
        (b"_1", None),
        (b"1worker_1", None),
        (b"wor ker_1", None),
        (b".tmp_1", None),
        (b"", None),
    ],
)
def test_names_of_working_directories(name: bytes, parsed: WorkdirName | None) -> None:
    assert WorkdirName.parse(name) == parsed
    if parsed is not None:
        assert parsed.encoded() == name


@pytest.mark.parametrize(
    ("role", "resource_id", "message"),
    [
        ("", "1", "role ''"),
        ("a_b", "1", "role 'a_b'"),
        ("1a", "1", "role '1a'"),
        ("a/b", "1", "role 'a/b'"),
        ("worker", "", "id ''"),
        ("worker", "a/b", "id 'a/b'"),
        ("worker", "a\0b", "id"),
        ("worker", "\ud800", "not a text that a file name can hold"),
        ("worker", "x" * 249, "256 bytes long; at most 255"),
        ("worker", "ä" * 125, "257 bytes long; at most 255"),
    ],
)
def test_a_name_that_can_not_be_is_refused(role: str, resource_id: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WorkdirName.checked(role, resource_id)
    assert message in str(caught.value)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True), st.text(min_size=1, max_size=60))
def test_a_name_that_is_allowed_is_read_back(role: str, resource_id: str) -> None:
    try:
        name = WorkdirName.checked(role, resource_id)
    except ConfigurationError:
        return
    assert WorkdirName.parse(name.encoded()) == name
    assert len(name.encoded()) <= 255
    assert b"/" not in name.encoded()
