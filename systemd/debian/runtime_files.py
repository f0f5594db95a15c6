"""The Python environment of the package, copied from the one that ``./run`` has made: pinned, checked and compiled already.

Only what the daemon and the commands import is copied, no tools for development, no PySpark. The files move to another
place, so nothing is copied that names the old one: no scripts, no bytecode, no records of the installation.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement

from pinned_packages import wanted_by

_NOT_COPIED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


def runtime_distributions(project: Path, *extras: str) -> dict[str, Distribution]:
    """Return what the project ``pyproject.toml`` needs with the extras, and what that needs in turn, by normalized name."""
    found: dict[str, Distribution] = {}
    for requirement in wanted_by(tomllib.loads(project.read_text()), extras):
        _add(Requirement(requirement), found)
    return dict(sorted(found.items()))


def copy_distribution(distribution: Distribution, target: Path) -> None:
    """Copy an installed distribution into the directory ``target``, without the scripts that it came with."""
    for file in distribution.files or ():
        is_outside = ".." in file.parts
        if is_outside or file.suffix == ".pyc" or file.name in _NOT_COPIED:
            continue
        copied = target / file
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), copied)


def copy_package(source: Path, target: Path) -> None:
    """Copy a package of the checkout, without its C sources."""
    shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("__pycache__", "native"))


def licence_of(distribution: Distribution) -> str:
    """Return the name of the licence, as its metadata give it."""
    metadata = distribution.metadata
    stated = metadata["License-Expression"] or metadata["License"] or ""
    classifiers = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if line.startswith("License ::")
    ]
    return stated if stated and "\n" not in stated else ", ".join(classifiers) or "see its licence file"


def _add(requirement: Requirement, found: dict[str, Distribution]) -> None:
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    if name in found:
        return
    distribution = found[name] = importlib.metadata.distribution(name)
    for line in distribution.requires or ():
        inner = Requirement(line)
        if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
            _add(inner, found)
