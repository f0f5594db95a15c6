"""The environment of the programs that the daemon starts: what finds programs and libraries, and no credentials."""

from __future__ import annotations

from collections.abc import Mapping

_KEPT = ("PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH")


def for_child(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of ``environment`` a child gets. Credentials of stores are often variables: they stay here."""
    return {name: environment[name] for name in _KEPT if name in environment}
