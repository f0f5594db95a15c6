"""``./run cluster``: several nodes on one machine, until Ctrl-C; ``./run cluster exec NODE COMMAND``: a command on one."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.config.units import ByteSize
from tests.cluster.cluster import WAYS_IN, Cluster
from tests.cluster.directories import living
from tests.cluster.namespaces import Identity, entering
from tests.cluster.settings import MOUNTPOINT, Settings

_BITS = 8
_EPILOG = "Everything is made in a new directory below $HOLDFAST_TEST_DIRECTORY (default /var/tmp), and removed at the end."
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run a cluster, or a command on a node of one that runs; return the exit status."""
    if os.geteuid() != 0:
        sys.exit("run cluster: this needs root, for mounts and name spaces")
    base = Path(os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp"))
    if arguments[:1] == ["exec"]:
        _execute(base, arguments[1:])
    options = _parser().parse_args(arguments)
    for number in _ENDINGS:  # a shell starts what runs in the background with SIGINT ignored
        signal.signal(number, _end)
    settings = Settings(
        nodes=options.nodes,
        cores=options.cores,
        partitions=options.partitions,
        away_seconds=options.delay / 2000,
        bytes_per_second=int(options.bandwidth * 1e6 / _BITS),
        disk_bytes=options.disk,
    )
    try:
        began = time.monotonic()
        with Cluster.running(base, settings) as cluster:
            print(_guide(cluster, time.monotonic() - began), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("ended: nothing is left of it")
    return 0


def _end(number: int, frame: object) -> None:
    for other in _ENDINGS:  # what takes it down is not to be interrupted again
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _guide(cluster: Cluster, seconds: float) -> str:
    server = cluster.server
    pids = ", ".join(f"{node.name} {node.first_pid}" for node in cluster.nodes)
    spark = f"{cluster.master.url}, page {cluster.master.page}" if cluster.master else "none, as asked for (--cores 0)"
    return f"""\
{len(cluster.nodes)} nodes after {seconds:.0f} s; Ctrl-C ends all of it
  mount, on every node    {MOUNTPOINT}
  shared directory        {cluster.shared}
  Spark                   {spark}
  S3                      {server.endpoint}, bucket {server.bucket}, keys {server.access_key_id} {server.secret_access_key}
  logs                    {cluster.directory}/node1/{{daemon,worker}}.log
  a command on a node     ./run cluster exec node1 holdfast status
  a shell on a node       ./run cluster exec node2 bash        (--root before the node: as root)
  a job on the cluster    ./run cluster exec node1 spark-submit JOB.py
  by hand                 nsenter -m -u -p -t PID, where PID is: {pids}"""


def _execute(base: Path, arguments: Sequence[str]) -> None:
    """Become a command on a node of the cluster that runs."""
    parser = argparse.ArgumentParser(prog="./run cluster exec", description="run a command on a node, as the user spark")
    parser.add_argument("--root", action="store_true", help="as root")
    parser.add_argument("node")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    ways = [path / WAYS_IN for path in living(base) if (path / WAYS_IN).exists()]
    if len(ways) != 1:
        sys.exit(f"run cluster: {len(ways) or 'no'} clusters run in {base}; start one with ./run cluster")
    nodes = json.loads(ways[0].read_text())
    if options.node not in nodes:
        sys.exit(f"run cluster: there is no node {options.node}; there are {', '.join(nodes)}")
    node = nodes[options.node]
    identity = Identity(**node["root" if options.root else "spark"])
    command = entering(node["first_pid"], identity, options.command or ["bash"])
    os.execvp(command[0], command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run cluster", description=__doc__, epilog=_EPILOG)
    parser.add_argument("--nodes", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--cores", type=int, default=1, help="cores of each node's worker (default 1; 0: no Spark)")
    parser.add_argument("--partitions", type=int, default=12, help="spark.sql.shuffle.partitions (default 12)")
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="the store's round trip (default 0)")
    parser.add_argument(
        "--bandwidth",
        type=float,
        default=0.0,
        metavar="MBIT",
        help="each node's line to the store, Mbit/s (default: no limit)",
    )
    parser.add_argument(
        "--disk", type=ByteSize.parse, default=0, metavar="SIZE", help="each node's disk, as in 2GiB (default: no limit)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
