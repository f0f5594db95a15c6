"""Checks, before a restart ends the running daemon, whether another one could start with the configuration as it is now.

The program on the disk is asked, with ``--check``: after an upgrade it knows other keys than the daemon that runs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from itertools import pairwise

from holdfast.errors import ConfigurationError

_SECONDS = 60.0
"""The time limit of a check: far longer than one takes on a busy machine."""


def check(command: Sequence[str]) -> None:
    """Run the daemon's ``command`` with ``--check``; its ``--options-fd`` must be open here. Blocks.

    Raises ``ConfigurationError`` with the reason for which the daemon would not start.
    """
    options = [int(value) for option, value in pairwise(command) if option == "--options-fd"]
    try:
        told = subprocess.run(
            [*command, "--check"],
            pass_fds=options,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ConfigurationError(f"the next daemon can't be asked whether it could start: {problem}") from None
    if told.returncode != 0:
        reason = told.stderr.strip().rpartition("\n")[2] or f"it ended with {told.returncode}"
        raise ConfigurationError(f"the next daemon would not start: {reason.removeprefix('holdfastd: ')}")
