"""``log.level = debug``: one line for each request of the mount, and one for each request to a store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until


def logged(node: Node, pattern: str) -> int:
    """Return how many lines of the log have ``pattern``."""
    return len(re.findall(pattern, node.log.read_text()))


def test_each_request_has_a_line_with_what_it_was_about_and_what_came_of_it(
    make_node: NodeFactory, remote_files: Path
) -> None:
    node = make_node(log__level="debug").start()
    (remote_files / "object").write_bytes(b"12345")
    assert (node.checkpoints / "object").read_bytes() == b"12345"
    (node.checkpoints / "object").rename(node.checkpoints / "new")
    (node.work / "two\nlines").mkdir()
    with pytest.raises(FileNotFoundError):
        (node.work / "absent").stat()
    who = r"pid \d+, uid 0"
    opened = rf"holdfast.requests: open checkpoints/object: done in [\d.]+ ms, cache miss, 5 bytes fetched, .*{who}"
    wait_until(lambda: logged(node, opened) == 1)
    renamed = rf"requests: rename checkpoints/object -> checkpoints/new: done in [\d.]+ ms, .*{who}"
    wait_until(lambda: logged(node, renamed) == 1)
    wait_until(lambda: logged(node, rf"requests: mkdir work/two\\nlines: done in [\d.]+ ms, {who}") == 1)
    wait_until(lambda: logged(node, rf"requests: lookup work/absent: ENOENT in [\d.]+ ms, {who}") == 1)
    assert logged(node, r"holdfast.remote: GET to checkpoints: done in [\d.]+ ms") == 1
    assert logged(node, r"holdfast.remote: fetched checkpoints/object: 5 bytes\n") == 1
