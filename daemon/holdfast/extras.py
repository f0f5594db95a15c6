"""The extras of the package, which add what ``pip install holdfast`` leaves out, and the error where they are missing.

The base has what talks to a daemon, and needs no compiler and no libfuse. ``pyproject.toml`` has the same lists.
"""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.errors import NotInstalledError

DAEMON = "daemon"
"""The extra of a node: what the daemon runs on."""
STORES = "stores"
"""The extra of Spark's jobs and data source, which open stores by themselves."""
UI = "ui"
"""The extra of ``holdfast ui``, which serves the page."""

PACKAGES = {
    DAEMON: ("awscrt", "fsspec", "h11", "lmdb", "obstore", "pyfuse3", "starlette", "trio"),
    STORES: ("awscrt", "fsspec", "obstore"),
    UI: ("h11", "starlette", "trio"),
}
"""The packages of each extra. They are imported by the names that pip knows them by."""


def missing(extra: str) -> list[str]:
    """Return which packages of the extra are not installed. Imports none of them."""
    return [name for name in PACKAGES[extra] if find_spec(name) is None]


def advice(extra: str, needed_by: str) -> str:
    """Say in one line what lacks the extra, and what to install."""
    lacking = ", ".join(missing(extra))
    return f"{needed_by} needs holdfast[{extra}]: pip install 'holdfast[{extra}]' (not installed: {lacking})"


def require(extra: str, needed_by: str) -> None:
    """Raise ``NotInstalledError`` if a package of the extra is not installed."""
    if missing(extra):
        raise NotInstalledError(advice(extra, needed_by))
