"""Nodes with two disks: ordinary ones, and disks whose power is cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.daemons.node import Node
from tests.support.disks.mounts import mounted_image
from tests.support.disks.recorded_disk import RecordedDisk


@contextmanager
def on_two_disks(
    make_node: Callable[..., Node], workspace: Path, first_bytes: int, other_bytes: int, **settings: Any
) -> Iterator[Node]:
    """Make a node, which the caller starts, and end it before its disks go."""
    with (
        mounted_image("ext4", workspace / "first", first_bytes) as first,
        mounted_image("ext4", workspace / "other", other_bytes) as other,
    ):
        (other / "holdfast").mkdir()
        node = make_node(store__directory=first / "store", store__other_disks=other / "holdfast", **settings)
        node.store = first / "store"
        try:
            yield node
        finally:
            node.clean_up()


class TwoDisks:
    """The disks of a node, at ``paths``. Their power is cut together, and each may be older than the other afterwards."""

    def __init__(self, workspace: Path) -> None:
        self.paths = [workspace / "first", workspace / "other"]
        self._images = [workspace / "first.img", workspace / "other.img"]
        self._disks: list[RecordedDisk] = []

    @contextmanager
    def serving(self, node: Node) -> Iterator[None]:
        """Mount the disks, or what a cut has left of them, and start the node."""
        is_new = not self._disks
        with ExitStack() as stack:
            pairs = zip(self.paths, self._images, strict=True)
            self._disks = [stack.enter_context(RecordedDisk("ext4", *each)) for each in pairs]
            if is_new:
                (self.paths[1] / "holdfast").mkdir()
            stack.callback(node.start().clean_up)
            yield

    def cut(self, node: Node, seed: int, kept: float) -> None:
        """Cut the power of node and disks."""
        os.kill(node.pid, signal.SIGSTOP)
        self._images = [image.with_suffix(".cut") for image in self._images]
        for number, (disk, image) in enumerate(zip(self._disks, self._images, strict=True)):
            disk.cut(image, seed + number, kept)
        node.kill()
