"""The environment of the programs that the daemon starts: search paths for programs and libraries, no credentials."""

from __future__ import annotations

from collections.abc import Mapping

_KEPT = ("PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH")


def for_child(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environment`` that a child gets. Credentials of stores are often variables: they stay here."""
    return {name: environment[name] for name in _KEPT if name in environment}
