"""Draining: a node that is about to go away takes nothing new for its stores, and sends what it has.

Other daemons of the same mount go on draining; a new mount begins without.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import DrainingError
from holdfast.zones import Zone


class Drain:
    """The draining of this node. ``flag`` is a file that exists as long as the node is being drained."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        self.is_on = flag.exists()

    def begin(self) -> None:
        """Take nothing new from now on. Raises ``OSError``."""
        self._flag.touch(mode=0o600)
        self.is_on = True

    def end(self) -> None:
        """Take everything again. Raises ``OSError``."""
        self._flag.unlink(missing_ok=True)
        self.is_on = False

    def check(self, zone: Zone) -> None:
        """Raise ``DrainingError`` if something new in ``zone`` would be sent to a store."""
        if self.is_on and zone.sends:
            raise DrainingError(
                "this node is being drained: it takes nothing new for its stores ('holdfast drain --undo' ends that)"
            )
