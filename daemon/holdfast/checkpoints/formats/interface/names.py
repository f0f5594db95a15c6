"""Words that the grammars of all formats share."""

from __future__ import annotations

from dataclasses import dataclass

UUID = rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

LOGS = "logs and schemas"
TEMPORARY = "temporary and checksums"
OTHER = "other"
"""Purposes that any format's files may have, in a report on usage."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that a grammar does not have: it is kept, whatever it is."""

    name: bytes
