"""What each name of Flink's checkpoints is: its own layout, file merging, and the layout of FLINK-10930."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.formats.flink_layout import FlinkKind, FlinkName, parse_flink, parse_flink_directory
from holdfast.checkpoints.formats.interface import Unknown
from tests.support.checkpoints import samples

U = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"
JOB = "a" * 32
VERTEX = "b" * 32
SUBTASK = f"job_{JOB}_op_{VERTEX}_0_4"
MANAGER = f"job_{JOB}_tm_localhost-1"
SAVEPOINT = "savepoint-1f2e3d-0123456789ab"
KNOWN = {
    f"{JOB}/chk-17/_metadata": (FlinkKind.METADATA, JOB, "chk-17", 17),
    "chk-0/_metadata": (FlinkKind.METADATA, "", "chk-0", 0),
    f"a/b/{JOB}/chk-17/{U}": (FlinkKind.EXCLUSIVE, f"a/b/{JOB}", "chk-17", 17),
    f"{JOB}/chk-17/._metadata.inprogress.{U}": (FlinkKind.UNFINISHED_METADATA, JOB, "chk-17", 17),
    f"{JOB}/exclusive/chk-17-{U}": (FlinkKind.EXCLUSIVE, JOB, "exclusive", 17),
    f"{JOB}/exclusive/chk-17-000007.sst": (FlinkKind.EXCLUSIVE, JOB, "exclusive", 17),
    f"{JOB}/shared/{U}": (FlinkKind.SHARED, JOB, "shared", None),
    f"shared/{U}": (FlinkKind.SHARED, "", "shared", None),
    f"{JOB}/shared/{SUBTASK}/{U}": (FlinkKind.SHARED_SEGMENTS, JOB, f"shared/{SUBTASK}", None),
    f"{JOB}/taskowned/{U}": (FlinkKind.TASK_OWNED, JOB, "taskowned", None),
    f"{JOB}/taskowned/{MANAGER}/{U}": (FlinkKind.TASK_OWNED, JOB, f"taskowned/{MANAGER}", None),
    f"{JOB}/taskowned/chk-3/_metadata": (FlinkKind.TASK_OWNED, JOB, "taskowned/chk-3", None),
    f"{JOB}/dstl/{U}": (FlinkKind.TASK_OWNED, JOB, "dstl", None),
    f"{SAVEPOINT}/_metadata": (FlinkKind.SAVEPOINT_METADATA, "", SAVEPOINT, None),
    f"saved/{SAVEPOINT}/{U}": (FlinkKind.SAVEPOINT, "saved", SAVEPOINT, None),
    f"saved/{SAVEPOINT}/shared/{U}": (FlinkKind.SAVEPOINT, "saved", f"{SAVEPOINT}/shared", None),
    f"saved/{SAVEPOINT}/chk-1/_metadata": (FlinkKind.SAVEPOINT, "saved", f"{SAVEPOINT}/chk-1", None),
    "kept for the audit/_metadata": (FlinkKind.OTHER_METADATA, "", "kept for the audit", None),
    "a/b/_metadata": (FlinkKind.OTHER_METADATA, "a", "b", None),
    "_metadata": (FlinkKind.OTHER_METADATA, "", "", None),
}
UNKNOWN = [
    "",
    "a",
    f"{JOB}/chk-17/part-0",
    f"{JOB}/chk-17/deeper/{U}",
    f"{JOB}/chk-17/{U}.crc",
    f"{JOB}/chk-007/_metadat",
    f"{JOB}/shared/{U.upper()}",
    f"{JOB}/shared/model.bin",
    f"{JOB}/shared/elsewhere/{U}",
    f"{JOB}/exclusive/{U}",
    f"{JOB}/exclusive/chk-17",
    f"{JOB}/exclusive/chk-17-",
    f"{JOB}/chk_17/{U}",
    "taskowned",
    SAVEPOINT,
]


@pytest.mark.parametrize("name", KNOWN)
def test_known_names(name: str) -> None:
    entry = parse_flink(name.encode())
    assert isinstance(entry, FlinkName)
    assert (entry.kind, entry.job.decode(), entry.directory.decode(), entry.checkpoint) == KNOWN[name]
    assert entry.name == name.encode()


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_names_are_unknown_and_kept_as_they_are(name: str) -> None:
    assert parse_flink(name.encode()) == Unknown(name.encode())


def test_a_checkpoint_has_one_name_in_both_layouts() -> None:
    for name in (f"{JOB}/chk-17/{U}", f"{JOB}/exclusive/chk-17-{U}", f"{JOB}/chk-17/_metadata"):
        entry = parse_flink(name.encode())
        assert isinstance(entry, FlinkName)
        assert entry.checkpoint_name == f"{JOB}/chk-17".encode()
    entry = parse_flink(b"chk-17/_metadata")
    assert isinstance(entry, FlinkName)
    assert entry.checkpoint_name == b"chk-17"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{JOB}/chk-3", FlinkKind.CHECKPOINT_DIRECTORY),
        ("chk-3", FlinkKind.CHECKPOINT_DIRECTORY),
        (f"{JOB}/shared/{SUBTASK}", FlinkKind.SEGMENTS_DIRECTORY),
        (f"{JOB}/shared", None),
        (f"{JOB}/taskowned", None),
        (f"{JOB}/taskowned/{MANAGER}", None),
        (f"{JOB}/taskowned/chk-3", None),
        (SAVEPOINT, None),
        (f"{SAVEPOINT}/chk-3", None),
        (JOB, None),
    ],
)
def test_only_directories_of_checkpoints_and_of_file_merging_can_become_superfluous(
    name: str, kind: FlinkKind | None
) -> None:
    entry = parse_flink_directory(name.encode())
    assert (entry.kind if isinstance(entry, FlinkName) else None) is kind


@pytest.mark.parametrize("name", [name for name in samples.names() if name.startswith("flink-") and "versions" not in name])
def test_every_name_of_real_checkpoints_and_savepoints_is_known(name: str) -> None:
    files = samples.sample(name).files
    assert files
    assert [path for path in files if isinstance(parse_flink(path), Unknown)] == []


@given(st.lists(st.sampled_from([b"chk-1", b"shared", b"exclusive", b"taskowned", b"_metadata", b"\xff", b"", U.encode()])))
def test_any_path_is_a_name(components: list[bytes]) -> None:
    name = b"/".join(components)
    assert parse_flink(name).name == name
    assert parse_flink_directory(name).name == name


@given(st.binary())
def test_any_bytes_are_a_name(name: bytes) -> None:
    assert parse_flink(name).name == name
    assert parse_flink_directory(name).name == name
