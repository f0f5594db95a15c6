"""What a cluster is made of, and where things are on its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOUNTPOINT = Path("/run/mnt/holdfast")
"""The same on every node, and nothing outside of them: ``/run`` is a node's own."""
CONTROL_SOCKET = Path("/run/holdfast/control.sock")
CONFIGURATION = Path("/etc/holdfast/holdfast.toml")
TOOLS = PurePosixPath("/run/cluster")
"""Where a node sees this checkout and its Python, which may be where only root may look."""
MASTER = "127.0.0.10"
USER = "spark"
GROUP = "holdfast"


@dataclass(frozen=True)
class Settings:
    """What there is of everything.

    ``cores`` are those of each worker, and ``executor_cores`` those of each executor; 0: no Spark. ``away_seconds`` is the
    store's distance each way, and ``bytes_per_second`` what a node's line to it carries (0: no limit). ``disk_bytes`` is how
    large a node's disk is (0: the machine's own disk, unlimited). ``worker_memory`` and ``executor_memory`` are Spark's
    settings; ``options`` are more keys of the daemons' configuration, with their values as TOML, ``spark`` more settings of
    Spark.
    """

    nodes: int = 3
    cores: int = 1
    executor_cores: int = 1
    partitions: int = 12
    away_seconds: float = 0.0
    bytes_per_second: int = 0
    disk_bytes: int = 0
    worker_memory: str = "2g"
    executor_memory: str = "600m"
    options: tuple[tuple[str, str], ...] = ()
    spark: tuple[tuple[str, str], ...] = ()

    @property
    def executors(self) -> int:
        """The number of executors that the workers have cores for."""
        return self.nodes * (self.cores // self.executor_cores)

    def address(self, number: int) -> str:
        """Return the address of a node, counted from 1."""
        return f"127.0.0.{10 + number}"

    def name(self, number: int) -> str:
        """Return the host name of a node, counted from 1."""
        return f"node{number}"
