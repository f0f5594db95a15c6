"""A request that may have been carried out already: by an earlier daemon, which ended before it answered.

The kernel sends such a request again, marked. What it asks for is done once all the same, because a process that waits for
the answer holds the kernel's lock on the directory, and the kernel knew whether the name was there when it asked: a
resent creation that finds its name taken finds its own work, and a resent removal that finds nothing has removed it.
Where the state does not tell, the first attempt leaves a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Attempt(NamedTuple):
    """A request by its number, which is the same however often it is sent; 0: it has none, and is never resent."""

    number: int
    resent: bool

    def create(self, step: Callable[[], None]) -> None:
        """Carry out a step that ends with EEXIST if it was carried out before."""
        try:
            step()
        except FileExistsError:
            if not self.resent:
                raise


FIRST = Attempt(0, False)
