"""The files that are fetched ahead for a partition."""

from __future__ import annotations

from pathlib import Path

from holdfast_spark.placement.fetch_ahead import begin_fetch, files_to_read


def test_before_the_first_batch_has_ended_there_are_none(tmp_path: Path) -> None:
    state = tmp_path / "state/0/3/1.delta"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"of a batch that never ended")
    assert files_to_read(tmp_path, 3) == []
    begin_fetch(tmp_path, 3)
    (tmp_path / "commits").mkdir()
    assert files_to_read(tmp_path, 3) == []
    (tmp_path / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert files_to_read(tmp_path, 3) == [state]
    assert files_to_read(tmp_path, 4) == []
