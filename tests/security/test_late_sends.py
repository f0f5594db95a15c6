"""Files that are sent late, of teams with stores of their own."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server


def test_a_store_that_is_away_keeps_no_file_of_another_team_from_being_sent(
    make_node: NodeFactory, s3_moto: S3Server, workspace: Path
) -> None:
    """Gain: what blue writes is on one node alone, for as long as red's store is away or has much to take."""
    server = s3_moto.below(uuid.uuid4().hex)
    with FaultProxy(server.endpoint) as proxy:
        far = server.through(proxy.endpoint)
        node = make_node(
            stores__red__url=far.below("red").url,
            stores__red__durability="async",
            stores__blue__url=f"file://{workspace}/remote/blue",
            stores__blue__durability="async",
        )
        node.environment.update(far.environment)
        node.start()
        reds = [(node.mountpoint / f"red/{number}").open("wb") for number in range(3)]
        proxy.down()
        for red in reds:
            red.write(b"red")
            red.close()
        (node.mountpoint / "blue/file").write_bytes(b"blue")
        wait_until((workspace / "remote/blue/file").exists)
        wait_until(lambda: node.status().unsent_files == len(reds))  # the daemon hears of it after the store has it
        proxy.up()
        wait_until(lambda: node.status().unsent_files == 0)
