"""What a sweep takes from a working directory, and all that it leaves to the processes that live there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.checkpoints.reachability import Policy, Reason
from holdfast.workdirs.garbage import Content, garbage, is_judged
from tests.support.checkpoints.roots import DAY, HOUR, START

POLICY = Policy(grace_ns=HOUR, abandoned_ns=DAY)
UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
SUBTASK = f"localState/aid_{'a' * 32}/jid_{'b' * 32}/vtx_{'c' * 32}_sti_0"
BLOB = f"blobStorage/job_{'b' * 32}/blob_p-{'d' * 40}-{'e' * 32}"


def content(name: str, age_ns: int = 2 * HOUR, size_bytes: int = 5, **more: bool | int) -> Content:
    return replace(Content(name.encode(), size_bytes, START - age_ns), **more)  # type: ignore[arg-type]


def directory(name: str, age_ns: int = 2 * HOUR) -> Content:
    return content(name, age_ns, 4096, is_directory=True)


def planned(*contents: Content, held_for_ns: int | None = None) -> dict[str, tuple[Reason, int]]:
    held_since_ns = None if held_for_ns is None else START - held_for_ns
    plan = garbage(contents, held_since_ns, POLICY, START)
    return {entry.name.decode(): (entry.reason, entry.size_bytes) for entry in plan.entries}


@pytest.mark.parametrize("name", [f"tmp/local/spark-{UUID}", f"tmp/blockmgr-{UUID}", f"spark-{UUID}"])
def test_directories_of_dead_processes_go_as_a_whole(name: str) -> None:
    tree = [directory(name), directory(f"{name}/0c"), content(f"{name}/0c/shuffle_0_0_0.data", size_bytes=70)]
    assert planned(*tree) == {name: (Reason.DEAD_PROCESS, 70)}
    assert planned(*tree, held_for_ns=HOUR + 1) == {name: (Reason.DEAD_PROCESS, 70)}


def test_the_outermost_directory_is_the_one_that_goes() -> None:
    name = f"tmp/spark-{UUID}"
    tree = [directory(name), directory(f"{name}/executor-{UUID}"), directory(f"{name}/executor-{UUID}/blockmgr-{UUID}")]
    assert list(planned(*tree)) == [name]


def test_what_the_present_holder_may_have_made_stays() -> None:
    assert planned(directory(f"tmp/spark-{UUID}"), held_for_ns=2 * HOUR) == {}
    written_since = [directory(f"tmp/spark-{UUID}", 9 * HOUR), content(f"tmp/spark-{UUID}/file", 2 * HOUR)]
    assert planned(*written_since, held_for_ns=3 * HOUR) == {}


def test_what_is_open_or_young_stays() -> None:
    name = f"tmp/spark-{UUID}"
    assert planned(directory(name), content(f"{name}/file", is_open=True)) == {}
    assert planned(directory(name), content(f"{name}/file", HOUR - 1)) == {}
    assert planned(directory(name), content(f"{name}/file", used_ns=START - HOUR + 1)) == {}


@pytest.mark.parametrize(
    "name",
    [
        f"localState/spark-{UUID}",
        f"blobStorage/blockmgr-{UUID}",
        "tmp/spark-0",
        "spark/app-20261121112851-0001",
        f"tmp/spark-{UUID}.zip",
        "slotAllocationSnapshots/0.bin",
        "localState/aid_1/jid_2/vtx_3_sti_x/chk_1",
        "blobStorage/job_1/other",
        "blobStorage/incoming/other",
        f"{SUBTASK}/chk_01",
    ],
)
def test_other_names_are_kept(name: str) -> None:
    assert not is_judged(name.encode())
    assert planned(content(name, DAY), directory(name, DAY)) == {}


def test_local_state_goes_when_a_later_checkpoint_is_over_too() -> None:
    states = [
        directory(f"{SUBTASK}/chk_{number}", age_ns) for number, age_ns in ((8, 4 * HOUR), (9, 3 * HOUR), (10, HOUR - 1))
    ]
    states.append(content(f"{SUBTASK}/chk_8/state", 4 * HOUR, size_bytes=11))
    assert planned(*states) == {f"{SUBTASK}/chk_8": (Reason.OLD_LOCAL_STATE, 11)}
    assert planned(*states, held_for_ns=DAY) == planned(*states), "Flink itself knows only of what it made"


def test_the_newest_local_state_of_each_subtask_stays_however_old() -> None:
    other = SUBTASK.replace("_sti_0", "_sti_1")
    assert planned(directory(f"{SUBTASK}/chk_9", 9 * DAY), directory(f"{other}/chk_10", 9 * DAY)) == {}


def test_local_state_that_is_open_stays() -> None:
    states = [directory(f"{SUBTASK}/chk_{number}", DAY) for number in (8, 9)]
    assert planned(*states, content(f"{SUBTASK}/chk_8/sst", DAY, is_open=True)) == {}


def test_transfers_that_were_cut_off_go_whoever_holds_the_directory() -> None:
    name = "blobStorage/incoming/temp-00000003"
    assert planned(content(name), held_for_ns=DAY) == {name: (Reason.ABORTED_TRANSFER, 5)}
    assert planned(content(name, HOUR - 1), content(name, is_open=True)) == {}


def test_copies_of_blobs_go_when_nobody_has_used_them() -> None:
    assert planned(content(BLOB, is_copy=True)) == {BLOB: (Reason.UNUSED_BLOB, 5)}
    assert planned(content(BLOB, DAY, is_copy=True), held_for_ns=HOUR) == {BLOB: (Reason.UNUSED_BLOB, 5)}
    assert planned(content(BLOB, DAY, is_copy=True), held_for_ns=HOUR - 1) == {}, "the holder may still look for it"
    assert planned(content(BLOB, DAY, is_copy=True, used_ns=START - HOUR), held_for_ns=2 * HOUR) == {}


def test_the_only_copy_of_a_blob_stays() -> None:
    assert planned(content(BLOB, DAY)) == {}
