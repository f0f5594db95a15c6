"""Users who go on attacking while something else happens."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.support.privileges import User


@contextmanager
def attacking(user: User, step: Callable[[int], object]) -> Iterator[None]:
    """Let a process of ``user`` call ``step`` with 0, 1, 2 … while the body runs; it has ended its first when that begins.

    Errors of the system are the attacker's bad luck, and are ignored.
    """
    begun_reader, begun = os.pipe()
    end_reader, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        try:
            user.become()
            number = 0
            while not select.select([end_reader], [], [], 0)[0]:
                with suppress(OSError):
                    step(number)
                number += 1
                if number == 1:
                    os.close(begun)
        finally:
            os._exit(0)
    os.close(begun)
    os.close(end_reader)
    try:
        os.read(begun_reader, 1)
        yield
    finally:
        os.close(end)
        os.close(begun_reader)
        os.waitpid(pid, 0)
