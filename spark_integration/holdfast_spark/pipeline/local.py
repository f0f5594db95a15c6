"""Spark on this machine alone, whatever the network knows of it."""

from __future__ import annotations

import os


def stay_on_this_machine() -> None:
    """Keep Spark from asking for this machine's address: where nobody knows its name it would not start.

    Call it before the session is made.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
