"""Plans and signatures that somebody forges: nothing is deleted, or believed, that a look at the store does not confirm."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.checkpoints.sweeps.plan_format import Header, Item, StoredPlan, StoredPolicy
from holdfast.control.client import RefusedError
from tests.support.daemons.node import Node, settle

GOOD = {"job/metadata": b"{}", "job/offsets/0": b"v1\n{}", "job/commits/0": b"v1\n{}"}


def forged(node: Node, names: list[str]) -> bytes:
    """Return a plan to delete these names, as ``orphans`` writes it when its inventory was forged."""
    items = []
    for name in names:
        found = (node.checkpoints / name).lstat() if name in GOOD else None
        size_bytes, mtime_ns = (found.st_size, found.st_mtime_ns) if found else (1, 1)
        items.append(
            Item(name=name, reason="unreferenced", about="", size_bytes=size_bytes, mtime_ns=mtime_ns, phase="file", etag="")
        )
    header = Header(
        id="20260101-000000-abcdef",
        kind="sweep",
        zone="checkpoints",
        root="",
        store=node.settings["checkpoints.url"],
        made_ns=1,
        policy=StoredPolicy(0.0, 0.0, 1),
        count=len(items),
        size_bytes=0,
    )
    return b"".join(StoredPlan(header, tuple(items)).lines())


@pytest.mark.promise("plans-confirmed")
@pytest.mark.parametrize(
    "name", [*GOOD, "../blobs/jar", "../../../etc/passwd", "/etc/passwd", ".holdfast/clock", "job/../x"]
)
def test_a_plan_deletes_nothing_that_a_second_look_does_not_confirm(node: Node, name: str) -> None:
    """Who may write the inventory, or the directory of plans, would choose what the daemon deletes, as root."""
    for path, content in {**{f"checkpoints/{path}": content for path, content in GOOD.items()}, "blobs/jar": b"jar"}.items():
        file = node.mountpoint / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with node.client() as client, suppress(RefusedError):
        plan = client.submit(forged(node, [name]))
        for _ in client.execute(plan.id):
            pass
        assert client.plan(plan.id).removed == 0
    settle(node.checkpoints)
    assert {path: (node.checkpoints / path).read_bytes() for path in GOOD} == GOOD
    assert (node.blobs / "jar").read_bytes() == b"jar"
