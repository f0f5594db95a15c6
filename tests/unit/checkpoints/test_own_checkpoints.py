"""Checkpoints of a plain process, on plain directories: what is sent, what is shared, what a failure leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from holdfast import Checkpoint, Job
from holdfast.checkpoints.formats.flink_layout import FlinkKind, FlinkName, parse_flink
from holdfast.checkpoints.formats.own.writer import transfers
from holdfast.errors import CheckpointError, UnreadableManifestError, WriteOnceError


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "work/app_1/rocksdb").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def rocksdb(mount: Path) -> Path:
    return mount / "work/app_1/rocksdb"


@pytest.fixture
def job(mount: Path) -> Job:
    return Job(mount / "work/app_1", "team/counter")


def write(file: Path, data: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def taken(job: Job, rocksdb: Path, **files: bytes) -> Checkpoint:
    """Take a checkpoint of SSTs with these contents and a manifest."""
    with job.begin() as checkpoint:
        for name, data in files.items():
            checkpoint.add_shared(write(rocksdb / f"{name}.sst", data))
        checkpoint.add_exclusive(write(rocksdb / "MANIFEST", b"names " + "".join(files).encode()))
        return checkpoint.commit()


def objects(job: Job) -> set[str]:
    return {str(path.relative_to(job.directory)) for path in job.directory.rglob("*") if path.is_file()}


def restored(checkpoint: Checkpoint, into: Path) -> dict[str, bytes]:
    checkpoint.restore(into)
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def test_a_checkpoint_is_in_the_layout_that_sweeps_know(job: Job, rocksdb: Path) -> None:
    with job.begin() as checkpoint:
        checkpoint.add_shared(write(rocksdb / "1.sst", b"one"))
        checkpoint.add_exclusive(write(rocksdb / "deep/MANIFEST", b"names"), "deep/MANIFEST")
        checkpoint.add_task_owned(write(rocksdb / "wal", b"log"))
        assert objects(job) == set(), "nothing is sent before the commit"
        checkpoint.commit()
    kinds = {entry.kind: entry for name in objects(job) if isinstance(entry := parse_flink(name.encode()), FlinkName)}
    assert kinds.keys() == {FlinkKind.SHARED, FlinkKind.EXCLUSIVE, FlinkKind.TASK_OWNED, FlinkKind.METADATA}
    assert kinds[FlinkKind.EXCLUSIVE].checkpoint == kinds[FlinkKind.METADATA].checkpoint == checkpoint.id == 1


def test_a_shared_file_that_is_there_is_not_sent_again(job: Job, rocksdb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = taken(job, rocksdb, a=b"a" * 100, b=b"b" * 100)
    sent: list[Path] = []
    send = transfers.send

    def watched(source: Path, target: Path) -> None:
        sent.append(target)
        send(source, target)

    monkeypatch.setattr(transfers, "send", watched)
    with job.begin() as second:
        for name in ("a", "b", "c"):
            second.add_shared(write(rocksdb / f"{name}.sst", name.encode() * 100))
        assert second.sent_bytes == 100
        second.commit()
    assert len(sent) == 1
    names = [{file.path: file.name for file in each.files} for each in (first, second)]
    assert {path: names[1][path] for path in ("a.sst", "b.sst")} == {path: names[0][path] for path in ("a.sst", "b.sst")}
    assert [checkpoint.id for checkpoint in job.all()] == [1, 2]


def test_what_is_restored_is_what_was_added(job: Job, rocksdb: Path, mount: Path) -> None:
    first = taken(job, rocksdb, a=b"1")
    second = taken(job, rocksdb, a=b"1", b=b"2")
    assert restored(first, mount / "one") == {"a.sst": b"1", "MANIFEST": b"names a"}
    newest = Job(mount / "work/app_1", "team/counter").newest()
    assert newest is not None
    assert newest.id == second.id
    assert restored(newest, mount / "two") == {"a.sst": b"1", "b.sst": b"2", "MANIFEST": b"names ab"}


def test_what_is_here_is_linked_and_the_rest_fetched(job: Job, rocksdb: Path, mount: Path) -> None:
    checkpoint = taken(job, rocksdb, a=b"1")
    (shared,) = [file for file in checkpoint.files if file.name.startswith("shared/")]
    checkpoint.restore(mount / "here")
    assert (mount / "here/a.sst").samefile(job.local / shared.name)
    assert not (mount / "here/MANIFEST").samefile(job.local / checkpoint.files[1].name), "it will be written to"
    job.forget_local()
    assert restored(checkpoint, mount / "there") == {"a.sst": b"1", "MANIFEST": b"names a"}


def test_an_added_file_is_as_it_was_then(job: Job, rocksdb: Path, mount: Path) -> None:
    manifest = write(rocksdb / "MANIFEST", b"then")
    with job.begin() as checkpoint:
        checkpoint.add_exclusive(manifest)
        manifest.write_bytes(b"later")
        checkpoint.commit()
    assert restored(checkpoint, mount / "out") == {"MANIFEST": b"then"}


def test_only_the_newest_checkpoint_is_kept_here(job: Job, rocksdb: Path) -> None:
    taken(job, rocksdb, a=b"1", b=b"2")
    second = taken(job, rocksdb, b=b"2", c=b"3")
    here = {str(path.relative_to(job.local)) for path in job.local.rglob("*") if path.is_file()}
    assert here == {file.name for file in second.files}


def test_a_checkpoint_that_is_not_committed_leaves_nothing(job: Job, rocksdb: Path) -> None:
    taken(job, rocksdb, a=b"1")
    before = objects(job)
    with job.begin() as checkpoint:
        checkpoint.add_shared(write(rocksdb / "b.sst", b"2"))
    assert objects(job) == before
    assert [path.name for path in (job.local / "shared").iterdir()] == [
        file.name.removeprefix("shared/") for each in job.all() for file in each.files if file.path == "a.sst"
    ]
    assert job.begin().id == 2, "nothing of it was ever in the store"


def test_a_commit_that_can_not_send_is_no_checkpoint_and_can_be_tried_again(
    job: Job, rocksdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(5, os.strerror(5))

    with job.begin() as checkpoint:
        checkpoint.add_shared(write(rocksdb / "a.sst", b"1"))
        with monkeypatch.context() as patched:
            patched.setattr(transfers, "send", fail)
            with pytest.raises(OSError, match="Input/output"):
                checkpoint.commit()
        assert job.all() == []
        checkpoint.commit()
    assert [each.id for each in job.all()] == [1]


def test_an_answer_that_was_lost_does_not_cost_the_checkpoint(
    job: Job, rocksdb: Path, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = transfers.place

    def lose_the_answer(source: Path, target: Path, temporary_name: str) -> None:
        place(source, target, temporary_name)
        if target.name == "_metadata":
            raise OSError(5, os.strerror(5))

    monkeypatch.setattr(transfers, "place", lose_the_answer)
    with job.begin() as checkpoint:
        checkpoint.add_shared(write(rocksdb / "a.sst", b"1"))
        with pytest.raises(OSError, match="Input/output"):
            checkpoint.commit()
    (there,) = job.all()
    job.forget_local()
    assert restored(there, mount / "out") == {"a.sst": b"1"}


def test_a_commit_that_is_tried_again_after_a_lost_answer_finds_itself(
    job: Job, rocksdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists_already(source: Path, target: Path, temporary_name: str) -> None:
        write(target, source.read_bytes())
        raise FileExistsError(17, os.strerror(17))

    with job.begin() as checkpoint:
        checkpoint.add_shared(write(rocksdb / "a.sst", b"1"))
        monkeypatch.setattr(transfers, "send", lambda source, target: write(target, source.read_bytes()))
        monkeypatch.setattr(transfers, "place", exists_already)
        checkpoint.commit()
    assert checkpoint.is_complete
    assert [each.id for each in job.all()] == [1]


def test_of_two_that_commit_one_number_one_wins(
    job: Job, rocksdb: Path, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the mount rename(2) refuses; here it is made to."""
    other = Job(mount / "work/app_2", "team/counter").begin()
    other.add_exclusive(write(mount / "work/app_2/MANIFEST", b"other"))
    first = taken(job, rocksdb, a=b"1")
    assert other.id == first.id

    def refuse(self: Path, target: Path) -> Path:
        raise FileExistsError(17, os.strerror(17))

    monkeypatch.setattr(
        Path, "rename", lambda self, target: refuse(self, target) if target.exists() else self.replace(target)
    )
    with pytest.raises(WriteOnceError, match="another process has committed checkpoint 1"):
        other.commit()
    other.abort()
    (there,) = job.all()
    job.forget_local()
    assert restored(there, mount / "out") == {"a.sst": b"1", "MANIFEST": b"names a"}


def test_a_commit_leaves_the_copies_of_another_checkpoint_under_way(job: Job, rocksdb: Path, mount: Path) -> None:
    slow = job.begin()
    slow.add_exclusive(write(rocksdb / "slow", b"slow"))
    with job.begin() as quick:
        quick.id += 1
        quick.add_exclusive(write(rocksdb / "quick", b"quick"))
        quick.commit()
    slow.commit()
    assert restored(slow, mount / "out") == {"slow": b"slow"}


def test_numbers_go_on_above_what_late_files_say(job: Job, rocksdb: Path) -> None:
    taken(job, rocksdb, a=b"1")
    write(job.directory / "exclusive/chk-7-0-late", b"late")
    write(job.directory / "chk-5/other", b"")
    assert taken(job, rocksdb, a=b"1").id == 8


def test_drop_and_retain_take_the_metadata_first_and_leave_what_is_shared(job: Job, rocksdb: Path, mount: Path) -> None:
    for number in range(4):
        taken(job, rocksdb, a=b"1", **{f"n{number}": b"n%d" % number})
    job.retain(2)
    assert [each.id for each in job.all()] == [3, 4]
    assert not [
        name for name in objects(job) if name.startswith(("chk-1/", "chk-2/", "exclusive/chk-1-", "exclusive/chk-2-"))
    ]
    assert len([name for name in objects(job) if name.startswith("shared/")]) == 5
    assert restored(job.all()[0], mount / "out").keys() == {"a.sst", "n2.sst", "MANIFEST"}
    with pytest.raises(CheckpointError):
        job.retain(0)


def test_a_base_that_is_dropped_and_swept_meanwhile_does_not_take_the_shared_files_along(
    job: Job, rocksdb: Path, mount: Path
) -> None:
    taken(job, rocksdb, a=b"1")
    with job.begin() as second:
        shared = second.add_shared(write(rocksdb / "a.sst", b"1"))
        second.add_shared(write(rocksdb / "b.sst", b"2"))
        Job(mount / "work/app_1", "team/counter").drop(1)
        (job.directory / shared.name).unlink()
        second.commit()
    assert (job.directory / shared.name).read_bytes() == b"1"
    job.forget_local()
    assert restored(second, mount / "out") == {"a.sst": b"1", "b.sst": b"2"}


def test_metadata_that_can_not_be_read_is_an_error_and_not_an_older_state(job: Job, rocksdb: Path, mount: Path) -> None:
    taken(job, rocksdb, a=b"1")
    write(job.directory / "chk-2/_metadata", b'{"holdfast":9,"checkpoint":2,"files":[]}')
    with pytest.raises(UnreadableManifestError, match="chk-2/_metadata: unknown version"):
        Job(mount / "work/app_1", "team/counter").newest()


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b"])
def test_hostile_metadata_leads_nowhere(job: Job, mount: Path, path: str) -> None:
    name = path.encode()
    write(
        job.directory / "chk-1/_metadata",
        b'{"holdfast":1,"checkpoint":1,"files":[{"name":"shared/x","size_bytes":1,"digest":"","path":"%s"}]}' % name,
    )
    write(job.directory / "shared/x", b"x")
    (checkpoint,) = job.all()
    with pytest.raises(CheckpointError, match="leads elsewhere"):
        checkpoint.restore(mount / "into/deep")
    assert not list((mount / "into").rglob("[!d]*"))


def test_mistakes_are_told(job: Job, rocksdb: Path, mount: Path) -> None:
    file = write(rocksdb / "a.sst", b"1")
    with job.begin() as checkpoint:
        checkpoint.add_shared(file)
        with pytest.raises(CheckpointError, match=r"has a file a\.sst already"):
            checkpoint.add_exclusive(file)
        with pytest.raises(CheckpointError, match="leads elsewhere"):
            checkpoint.add_shared(file, "../a")
        with pytest.raises(CheckpointError, match="is not complete"):
            checkpoint.restore(mount / "out")
        with pytest.raises(FileNotFoundError):
            checkpoint.add_shared(rocksdb / "nothing")
        checkpoint.commit()
        for action in (checkpoint.commit, lambda: checkpoint.add_shared(file, "b")):
            with pytest.raises(CheckpointError, match="complete"):
                action()
    with pytest.raises(FileExistsError):
        checkpoint.restore(rocksdb)
    for name in ("", "/x", "a/../b"):
        with pytest.raises(CheckpointError, match="no name for a job"):
            Job(mount / "work/app_1", name)


def test_the_package_offers_what_programs_need() -> None:
    assert holdfast.Checkpoint is Checkpoint
    assert holdfast.ControlClient.__name__ == "ControlClient"
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        getattr(holdfast, "Other")  # noqa: B009 mypy knows that there is none
