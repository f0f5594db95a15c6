"""Selects from constraints.txt what some extras of pyproject.toml need, with hashes, for ``./run``. Needs no package itself.

    python3 pinned_packages.py demo build    prints requirements for pip: the dependencies, these extras, and what they need

pip-compile notes under each package what it is there for ("via"). A package is selected if one of those is, or if
pyproject.toml names it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_VIA = re.compile(r"^ +# via (.+)$|^ +#   (.+)$", re.MULTILINE)


def selected(constraints: str, wanted: Iterable[str]) -> str:
    """Return the part of the text of constraints.txt that ``wanted`` need. Raises ``SystemExit`` if one is not pinned."""
    sections = re.split(r"(?m)^(?=[A-Za-z0-9])", constraints)[1:]
    pinned = {_plain(section): section for section in sections}
    chosen = {_plain(each) for each in wanted}
    if missing := chosen - pinned.keys():
        raise SystemExit(
            f"constraints.txt does not pin {', '.join(sorted(missing))}: docs/contributing.md says how to renew it"
        )
    while more := {name for name, section in pinned.items() if name not in chosen and _needed_by(section) & chosen}:
        chosen |= more
    return "".join(section for name, section in pinned.items() if name in chosen)


def wanted_by(project: dict[str, object], extras: Iterable[str]) -> list[str]:
    """Return the requirements that pyproject.toml names for ``extras``, besides the dependencies."""
    table = project["project"]
    assert isinstance(table, dict)
    return [*table["dependencies"], *(each for extra in extras for each in table["optional-dependencies"][extra])]


def _plain(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def _needed_by(section: str) -> set[str]:
    found = (one or other for one, other in _VIA.findall(section))
    return {_plain(each) for each in found if not each.startswith("holdfast ")}


def main(extras: list[str]) -> None:
    """Print the selection."""
    project = tomllib.loads((_HERE / "pyproject.toml").read_text())
    sys.stdout.write(selected((_HERE / "constraints.txt").read_text(), wanted_by(project, extras)))


if __name__ == "__main__":
    main(sys.argv[1:])
