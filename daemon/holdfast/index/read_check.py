"""Checks in a separate process whether an index can be read from end to end.

LMDB kills a process that reads a damaged page (a failed assertion, SIGBUS), and so would kill the daemon at each start.
So a child process reads an index once before it is used, if the last daemon did not close it cleanly.

This file is also that process's program, and imports little: a mount waits for it after a crash.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import lmdb

from holdfast.system.processes import for_child

MOST_DATABASES = 7
DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.DbsFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""Raised for a file that is not an intact index. Other errors don't mean that the index is damaged."""

_DEADLY = (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV)
_UNREADABLE = 3


def why_unreadable(path: Path) -> str | None:
    """Read the whole index in the directory ``path``, which no process has open; return what is wrong with it, or None.

    If the child fails for other reasons, the index counts as readable.
    """
    command = [sys.executable, "-P", __file__, str(path)]  # -P: no module from the current directory
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=for_child(os.environ)
    )
    if -result.returncode in _DEADLY:
        return f"reading it ends in {signal.Signals(-result.returncode).name}"
    return result.stdout.strip() if result.returncode == _UNREADABLE else None


def _read_in_child(path: str) -> None:
    """Read every record; on an LMDB error print it and exit."""
    try:
        _read_all(path)
    except DAMAGE as problem:
        sys.stdout.write(f"{problem}\n")
        sys.exit(_UNREADABLE)


def _read_all(path: str) -> None:
    with lmdb.open(path, max_dbs=MOST_DATABASES, readonly=True, lock=False) as environment:
        with environment.begin() as transaction:
            names = list(transaction.cursor().iternext(values=False))
        for name in names:
            database = environment.open_db(name, create=False)
            with environment.begin() as transaction:
                for _ in transaction.cursor(database):
                    pass


if __name__ == "__main__":
    _read_in_child(sys.argv[1])
