"""Holdfast: state next to the process that uses it.

For programs: ``holdfast.Job`` and ``holdfast.Checkpoint`` keep checkpoints of a process, ``holdfast.ControlClient`` speaks
to the daemon (``docs/checkpoints.md``). They are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.checkpoints.formats.own.writer import Checkpoint as Checkpoint
    from holdfast.checkpoints.formats.own.writer import Job as Job
    from holdfast.control.client import ControlClient as ControlClient

__version__ = "0.1.0"
__all__ = ["Checkpoint", "ControlClient", "Job", "__version__"]

_WHERE = {
    "Checkpoint": "holdfast.checkpoints.formats.own.writer",
    "ControlClient": "holdfast.control.client",
    "Job": "holdfast.checkpoints.formats.own.writer",
}


def __getattr__(name: str) -> Any:
    """Import what the package offers (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
