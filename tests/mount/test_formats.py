"""A format that is new to the registry, on a real mount."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import NodeFactory
from tests.support.node import wait_until
from tests.support.toy_format import manifest


def test_what_a_manifest_names_beside_its_directory_is_fetched_ahead(make_node: NodeFactory, remote_files: Path) -> None:
    for name, content in {
        "ckpt-1/MANIFEST": manifest("a", "b", "../../../out", "x" * 300, "\0"),
        "data/a": b"a",
        "data/b": b"b",
    }.items():
        (remote_files / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (remote_files / "toy" / name).write_bytes(content)
    node = make_node()
    node.module = "tests.support.toy_daemon"
    node.start()
    (node.checkpoints / "toy/ckpt-1/MANIFEST").read_bytes()
    wait_until(lambda: (node.store / "tree/checkpoints/toy/data/b").exists())
    assert (node.store / "tree/checkpoints/toy/data/a").exists()
