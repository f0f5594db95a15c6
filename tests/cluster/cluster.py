"""A cluster: one S3 server, one master, and nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tests.cluster import plans
from tests.cluster.directories import held_directory
from tests.cluster.links import Link
from tests.cluster.namespaces import Identity, Namespaces
from tests.cluster.node import ClusterNode, Surroundings
from tests.cluster.plans import Accounts
from tests.cluster.settings import MASTER, Settings
from tests.cluster.spark_daemons import MASTER_ARGUMENTS, MASTER_CLASS, Master
from tests.support.stores.s3 import Versitygw, serving_versitygw

WAYS_IN = "nodes.json"


@dataclass(frozen=True)
class Cluster:
    """All of it, running. All nodes see ``shared``, a directory of the user ``spark``. ``master``: None without Spark."""

    directory: Path
    shared: Path
    settings: Settings
    server: Versitygw
    master: Master | None
    nodes: list[ClusterNode]

    @classmethod
    @contextmanager
    def running(cls, base: Path, settings: Settings) -> Iterator[Self]:
        """Bring a cluster up in a new directory below ``base``, which must be on a real disk; it ends with the block."""
        with ExitStack() as stack:
            directory = stack.enter_context(held_directory(base))
            server = stack.enter_context(serving_versitygw(directory))
            accounts = Accounts.found_or_made_up()
            shared = directory / "shared"
            shared.mkdir()
            os.chown(shared, accounts.uid, accounts.gid)
            master = stack.enter_context(_master(directory / "master", settings, accounts)) if settings.cores else None
            urls = {name: server.below(name).url for name in ("checkpoints", "blobs")}
            around = Surroundings(master.url if master else "", urls, server.options, shared, accounts)
            nodes = []
            for number in range(1, settings.nodes + 1):
                link = Link(server.endpoint, settings.away_seconds, settings.bytes_per_second)
                node = ClusterNode(number, settings, directory / settings.name(number), link, around)
                stack.callback(node.kill)
                node.start()
                nodes.append(node)
            for node in nodes if settings.cores else []:
                node.wait_for_worker()
            cluster = cls(directory, shared, settings, server, master, nodes)
            cluster.tell_ways_in()
            yield cluster

    def node(self, name: str) -> ClusterNode:
        """Return the node of this name."""
        return next(node for node in self.nodes if node.name == name)

    def tell_ways_in(self) -> None:
        """Write down for other processes how the nodes that live are entered."""
        ways = {
            node.name: {
                "first_pid": node.first_pid,
                **{name: asdict(node.identity(as_root=name == "root")) for name in ("spark", "root")},
            }
            for node in self.nodes
            if node.lives
        }
        path = self.directory / WAYS_IN
        path.touch(0o600)
        path.write_text(json.dumps(ways))


@contextmanager
def _master(directory: Path, settings: Settings, accounts: Accounts) -> Iterator[Master]:
    home = directory / "home"
    home.mkdir(parents=True)
    os.chown(home, accounts.uid, accounts.gid)
    namespaces = Namespaces(plans.plan("master", MASTER, settings, accounts, {}), directory / "first-process.log")
    namespaces.start()
    identity = Identity(accounts.uid, accounts.gid, (), str(home), plans.environment(MASTER, home))
    command = namespaces.command(identity, ["spark-class", MASTER_CLASS, *MASTER_ARGUMENTS])
    master = Master(command, directory / "master.log")
    try:
        master.start()
        master.wait_until_in_order()
        yield master
    finally:
        namespaces.kill()
        master.reap()
