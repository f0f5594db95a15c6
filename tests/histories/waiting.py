"""``./run python -m tests.histories.waiting``: how long Spark waits for a busy executor, by its settings.

Prints the table of ``tests/cluster/waiting_job.py``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.settings import TOOLS, Settings

_JOB = str(TOOLS / "checkout/tests/cluster/waiting_job.py")


def main() -> None:
    """Start three nodes, and a driver on the first."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.waiting", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    with Cluster.running(parser.parse_args().directory, Settings(nodes=3)) as cluster:
        print(cluster.nodes[0].run("python", _JOB), end="")


if __name__ == "__main__":
    main()
