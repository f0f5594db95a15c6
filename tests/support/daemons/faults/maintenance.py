"""A fault of the daemon's housekeeping: it takes files of this moment for old ones."""

from __future__ import annotations

from holdfast.maintenance import abandoned_temporaries


def no_least_age() -> None:
    """Let a temporary file be abandoned as soon as the grace age is over, however small that is."""
    abandoned_temporaries._LEAST_AGE_SECONDS = 0.0
