"""The request that the event loop executes, and those during which earlier daemons have ended: words in a mapped file.

Word 1 is the number of the request that is executed now, or 0; the C module writes it (native/execution_mark.h). A daemon
that ends leaves it as it was. The next one counts the request, because the kernel sends it again: it may be the one that
ends daemons, and would end each new one. Requests that only waited are innocent and not counted. The counts follow, in
pairs of a request's number and the number of daemons.

No request is executed for as long as a watchdog waits, so one daemon that hung in it is evidence. But anybody may kill or
stop a daemon, at any moment, so it takes ``_MOST_DEATHS`` of these.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from holdfast.errors import TakeoverError

_MAGIC = int.from_bytes(b"HFEXEC_1", "little")
_EXECUTED = 1
_FIRST = 2
_COUNTS = 255
"""The number of counts, which fill a page: many more than there are unanswered requests at the same time."""
_MOST_DEATHS = 3


class ExecutionMark:
    """The words in the file ``path``, which is created if missing. Raises ``TakeoverError`` if it is not such a file."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size_bytes = (_FIRST + 2 * _COUNTS) * 8
            os.posix_fallocate(fd, 0, size_bytes)  # a store into a hole of a full tmpfs would kill the process
            self._mapped = mmap.mmap(fd, size_bytes)
        finally:
            os.close(fd)
        self._words = memoryview(self._mapped).cast("@Q")
        self.word = self._words[_EXECUTED : _EXECUTED + 1]
        """The word with the number of the request that is executed now."""
        if self._words[0] not in (0, _MAGIC):
            self.close()
            raise TakeoverError(f"{path} is no mark of an executed request of this version")
        self._words[0] = _MAGIC

    def count_end(self, *, hung: bool) -> None:
        """Count the request during which the daemon before this one ended, if there is one; ``hung``: it was replaced."""
        number = self.word[0]
        if number:
            slot = self._slot_of(number)
            deaths = self._words[slot + 1] if self._words[slot] == number else 0
            self._words[slot + 1] = _MOST_DEATHS if hung else deaths + 1
            self._words[slot] = number
            self.word[0] = 0

    def refused(self) -> list[int]:
        """Return the numbers of the requests that have ended so many daemons that no other one may execute them."""
        pairs = zip(self._words[_FIRST::2], self._words[_FIRST + 1 :: 2], strict=True)
        return [number for number, deaths in pairs if number and deaths >= _MOST_DEATHS]

    def close(self) -> None:
        """Close the file; it stays as it is. The C module must have given up the word."""
        self.word.release()
        self._words.release()
        self._mapped.close()

    def _slot_of(self, number: int) -> int:
        """Return the place of a request's pair: its own, or that of the oldest. Numbers ascend, and 0 is free."""
        places = range(_FIRST, _FIRST + 2 * _COUNTS, 2)
        own = [at for at in places if self._words[at] == number]
        return own[0] if own else min(places, key=lambda at: self._words[at])
