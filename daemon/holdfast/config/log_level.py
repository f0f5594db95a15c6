"""The rule for ``log.level``: one of the words that the log knows. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast.config.checking import Key
from holdfast.config.schema import Config


def log_contradictions(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield ``log.level``, and what is allowed, if there is no such level."""
    if config.log.level.upper() not in logging.getLevelNamesMapping():
        yield ("log", "level"), f"{config.log.level!r}; allowed are debug, info, warning, error"
