"""Names and files that somebody who may write to a store's directory, or to its bucket, plants there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.node import Node, settle

MANY = 100
"""More names than make a LIST of a directory cheaper than asking about one of them."""


@pytest.fixture
def outside(workspace: Path) -> Path:
    """A directory of the machine's, which is no part of any store."""
    directory = workspace / "outside"
    directory.mkdir(mode=0o700)
    (directory / "secret").write_bytes(b"of root alone")
    return directory


def crowded(directory: Path) -> Path:
    """Make a directory of a store in which single names are asked for."""
    directory.mkdir(parents=True)
    for number in range(MANY):
        (directory / f"object-{number}").write_bytes(b"")
    return directory


def error_of(action: Callable[[], object]) -> int:
    """Return the errno with which ``action`` fails; 0 if it succeeds."""
    try:
        action()
    except OSError as problem:
        return problem.errno or 0
    return 0


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_link_to_a_directory_in_a_store_leads_nowhere(node: Node, remote_files: Path, outside: Path) -> None:
    """Who may write to the directory of a file:// store would read, write and delete any file of the node, as root."""
    (crowded(remote_files / "team") / "link").symlink_to(outside)
    (remote_files / "link").symlink_to(outside)
    for directory in (node.checkpoints / "team", node.checkpoints):
        assert "link" not in os.listdir(directory)
        for name in ("link", "link/secret", "link/new"):
            assert error_of((directory / name).read_bytes) == errno.ENOENT
        assert error_of(partial((directory / "link/new").write_bytes, b"planted")) == errno.ENOENT
        assert error_of((directory / "link/secret").unlink) == errno.ENOENT
    settle(node.checkpoints)
    assert files_in(outside) == {"secret": b"of root alone"}


def test_a_directory_that_becomes_a_link_is_not_written_through(node: Node, remote_files: Path, outside: Path) -> None:
    """Who swaps a directory in use for a link would have root write, replace and delete files elsewhere."""
    job = node.checkpoints / "job"
    job.mkdir()
    for name in ("secret", "other"):
        (job / name).write_bytes(b"of the job")
    (remote_files / "job").rename(remote_files / "job-before")
    (remote_files / "job").symlink_to(outside)
    for name in ("secret", "new"):
        assert error_of(partial((job / name).write_bytes, b"planted")) == errno.EILSEQ
    (job / "secret").unlink()
    settle(job)
    assert files_in(outside) == {"secret": b"of root alone"}
