"""What is bound: nothing outside of the mount, and nothing that a symbolic link names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.csi.binding import _SEARCH, _directory
from holdfast.csi.serving import CallError
from holdfast.csi.volumes import Wanted


@pytest.mark.parametrize("path", ["store/link", "store/link/below", "store/file", "linked-store", "no-store/a"])
def test_what_is_not_below_a_store_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/link").symlink_to("/etc")
    (tmp_path / "store/file").touch()
    (tmp_path / "linked-store").symlink_to("store")
    with pytest.raises(CallError) as refused, _directory(os.open(tmp_path, _SEARCH), Wanted(path, read_only=False)):
        pass
    assert refused.value.status == "INVALID_ARGUMENT"
    assert not (tmp_path / "no-store").exists()


def test_a_directory_that_is_made_belongs_to_who_has_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with _directory(os.open(tmp_path, _SEARCH), Wanted("store/a/b", read_only=False)) as directory:
        assert os.path.samestat(os.fstat(directory), (tmp_path / "store/a/b").stat())
    assert (tmp_path / "store/a/b").stat().st_uid == (tmp_path / "store").stat().st_uid
