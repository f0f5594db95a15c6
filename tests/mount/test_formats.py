"""A format that is new to the registry, on a real mount."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import NodeFactory
from tests.support.checkpoints.checkpoint_roots import put
from tests.support.checkpoints.toy_format import manifest
from tests.support.daemons.node import Node, wait_until
from tests.support.spark import files as spark_files

UNIQUE = "01234567-0123-0123-0123-0123456789ab"


def test_what_a_manifest_names_beside_its_directory_is_fetched_ahead(make_node: NodeFactory, remote_files: Path) -> None:
    for name, content in {
        "ckpt-1/MANIFEST": manifest("a", "b", "../../../out", "x" * 300, "\0"),
        "data/a": b"a",
        "data/b": b"b",
    }.items():
        (remote_files / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (remote_files / "toy" / name).write_bytes(content)
    node = make_node()
    node.faults = ["toy_format"]
    node.start()
    (node.checkpoints / "toy/ckpt-1/MANIFEST").read_bytes()
    for name in ("a", "b"):  # they are fetched side by side
        wait_until((node.store / "tree/checkpoints/toy/data" / name).exists)


def test_what_came_ahead_into_a_directory_that_the_kernel_knows_is_not_fetched_again(node: Node, remote_files: Path) -> None:
    """Spark, which looks at the directory of its SSTs before it opens the first, fetches each of them once."""
    store = Path("query/state/0/0")
    names = [put(remote_files / store / f"SSTs/00000{number}-{UNIQUE}.sst").name for number in range(3)]
    put(remote_files / store / f"3_{UNIQUE}.zip", spark_files.snapshot(names))
    (node.checkpoints / store / "SSTs").stat()
    (node.checkpoints / store / f"3_{UNIQUE}.zip").read_bytes()
    for name in names:
        wait_until((node.store / "tree/checkpoints" / store / "SSTs" / name).exists)
        assert (node.checkpoints / store / "SSTs" / name).read_bytes() == b"x"
    assert node.status().counters["objects_fetched"] == len(names) + 1
