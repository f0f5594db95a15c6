"""Spark on this machine alone, independent of its name in the network."""

from __future__ import annotations

import os


def stay_on_this_machine() -> None:
    """Keep Spark from resolving this machine's host name, without which it would not start.

    Call it before the session is made.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
