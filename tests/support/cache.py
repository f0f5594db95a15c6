"""Where ``./run`` and the tests keep what is slow to get or make, outside of the checkout."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return ``$HOLDFAST_CACHE``, by default ``~/.cache/holdfast``."""
    home_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HOLDFAST_CACHE") or Path(home_cache, "holdfast"))
