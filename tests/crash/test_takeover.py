"""A mount that outlives its daemon: nobody who works in it notices a SIGKILL but by a short wait."""

from __future__ import annotations

import os

from tests.conftest import NodeFactory
from tests.support.node import Node


def supervised(make_node: NodeFactory) -> Node:
    node = make_node()
    node.supervised = True
    return node.start()


def test_names_and_open_files_go_on_after_a_kill(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    directory = node.work / "one"
    directory.mkdir()
    (directory / "file").write_bytes(b"before")
    inode = (directory / "file").stat().st_ino
    with (directory / "file").open("r+b", buffering=0) as file:
        node.kill_daemon()
        assert file.read() == b"before"
        file.write(b" and after")
        assert os.fstat(file.fileno()).st_size == 16
        assert sorted(os.listdir(directory)) == ["file"]
        assert (directory / "file").stat().st_ino == inode
    assert (directory / "file").read_bytes() == b"before and after"
    (directory / "file").rename(directory / "moved")
    assert [fields["open_files"] for fields in node.events("taken-over")] == [1]
