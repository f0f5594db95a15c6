"""The pressure on the machine's processors, from the kernel's pressure stall information (Linux 4.20 and later)."""

from __future__ import annotations

import time
from pathlib import Path

_FILE = Path("/proc/pressure/cpu")
_OLD_SECONDS = 1.0
"""The age of a look above which the kernel's average over ten seconds says more about now."""


class ProcessorPressure:
    """Tells in which share of the time some process of the machine has waited for a processor."""

    def __init__(self, file: Path = _FILE) -> None:
        self._file = file
        self._looked_at = float("-inf")
        self._stalled_seconds = 0.0

    def share(self) -> float:
        """Return the share since the last call, or of the last ten seconds if that is long ago; 0 if none is told.

        It opens and reads one small file of the kernel's, which takes some 10 µs.
        """
        try:
            some = self._file.read_text().splitlines()[0]
            fields = dict(field.split("=", 1) for field in some.split()[1:])
            average, stalled = float(fields["avg10"]) / 100, int(fields["total"]) / 1e6
        except (OSError, ValueError, LookupError):
            return 0.0
        now = time.monotonic()
        passed, more = now - self._looked_at, stalled - self._stalled_seconds
        self._looked_at, self._stalled_seconds = now, stalled
        return average if passed > _OLD_SECONDS else min(1.0, more / passed) if passed > 0 else average
