"""The options of histories that say what the line between nodes and store is like."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_line_options(parser: argparse.ArgumentParser, *, bandwidth: int, delay: float) -> None:
    """Add ``--bandwidth`` (Mbit/s, 0: no limit) and ``--delay`` (ms) with these defaults, and ``--directory``."""
    default = bandwidth or "no limit"
    parser.add_argument(
        "--bandwidth", type=int, default=bandwidth, metavar="MBIT/S", help=f"of each node's line (default {default})"
    )
    parser.add_argument(
        "--delay", type=float, default=delay, metavar="MS", help=f"the store's round trip (default {delay:g})"
    )
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
