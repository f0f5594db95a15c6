"""A sweep in parts, without Spark: the row functions of the jobs, with the joins of ``sweeping`` done by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import pyarrow

from holdfast.checkpoints.formats import Formats
from holdfast.checkpoints.formats.interface import Role
from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.reachability.division import Part
from holdfast_spark.arrow_forms import LISTED, PLACED, Form
from holdfast_spark.jobs.parsed_names import NAMED, Namer
from holdfast_spark.jobs.restart_files import STATE, UNIT, Chooser
from holdfast_spark.jobs.sweep_judges import MANIFESTS, PLANNED, REFERENCES, UNREFERRED, Judge
from holdfast_spark.stores import RemoteStore, StoreAddress
from tests.support.checkpoints.root_store import RootStore
from tests.support.checkpoints.roots import Root

Row = dict[str, Any]


class RootAddress:
    """The address of a root in memory."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def open(self) -> RemoteStore:
        return RootStore(self._root)


class Divided(NamedTuple):
    """Names with their reasons, and the names of what could not be judged."""

    entries: dict[str, str]
    kept: set[str]


def rows_of(root: Root, formats: Formats) -> list[Row]:
    """Return what the names of a root say: ``NAMED``, with ``location`` and ``location_layout``."""
    listed = [(each.name.decode(), each.size_bytes, each.mtime_ns, "", each.is_directory) for each in root.listing()]
    rows = list(_rows(NAMED, Namer(formats).name_all(LISTED.batches(listed))))
    marks: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for row in rows:
        for location, layout, mark in zip(row["claims"], row["claim_layouts"], row["marks"], strict=True):
            marks[location, layout].add(mark)
    layouts = {
        location: layout
        for (location, layout), found in sorted(marks.items(), reverse=True)
        if found == formats.locations[layout].marks
    }
    for row in rows:
        above = [each for each in layouts if f"{row['directory']}/".startswith(f"{each}/" if each else "")]
        row["location"] = max(above, key=len, default=None)
        row["location_layout"] = layouts.get(row["location"])
    return rows


def divided_sweep(root: Root, policy: Policy, formats: Formats) -> Divided:
    """Plan a sweep in as many parts as there can be."""
    judge = Judge(cast(StoreAddress, RootAddress(root)), "", policy, root.now_ns, formats)
    rows = rows_of(root, formats)
    outside = [row for row in rows if row["location"] is None]
    references = _references(judge, outside)
    planned = [*_units(judge, rows), *_alone(judge, outside, references)]
    entries = [row for row in planned if row["kept_because"] is None]
    kept = {row["name"] for row in (*references, *planned) if row["kept_because"] is not None}
    gone = {row["name"] for row in entries}
    occupied = {part for row in rows if row["name"] not in gone for part in _with_parents(row["directory"])}
    return Divided({row["name"]: row["reason"] for row in entries if row["name"] not in occupied}, kept)


def warmed(root: Root, formats: Formats) -> set[tuple[str, int, int, str]]:
    """Return location, operator, partition and name of what restarted queries need."""
    chooser = Chooser(cast(StoreAddress, RootAddress(root)), "", formats)
    files = [row for row in rows_of(root, formats) if row["location"] is not None and not row["is_directory"]]
    state = list(
        _rows(STATE, chooser.state_of(PLACED.batches(tuple(row[name] for name in PLACED.columns) for row in files)))
    )
    finished: dict[str, int] = {}
    for row in state:
        if row["finished"] is not None:
            finished[row["location"]] = max(row["finished"], finished.get(row["location"], 0))
    groups: defaultdict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for row in state:
        if row["operator"] is not None and row["location"] in finished:
            groups[row["location"], row["operator"], row["partition"]].append(row)
    form = STATE.with_columns(version="bigint")
    found: set[tuple[str, int, int, str]] = set()
    for (location, operator, partition), group in groups.items():
        table = form.table((*(row[name] for name in STATE.columns), finished[location]) for row in group)
        found |= {(location, operator, partition, row["name"]) for row in _rows(UNIT, [chooser.choose(table)])}
    return found


def _units(judge: Judge, rows: Iterable[Row]) -> Iterator[Row]:
    units: defaultdict[tuple[str, bool, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["is_directory"]:
            continue
        if row["location"] is not None:
            units[row["location"], True, row["location_layout"]].append(row)
        elif row["part"] == Part.GROUP.value:
            units[row["unit"], False, row["layout"]].append(row)
    for key, of_unit in units.items():
        yield from _rows(PLANNED, [judge.unit(tuple(map(pyarrow.scalar, key)), _table(LISTED, of_unit))])


def _references(judge: Judge, outside: Iterable[Row]) -> list[Row]:
    manifests = [row for row in outside if row["role"] == Role.MANIFEST.value]
    return list(_rows(REFERENCES, judge.references(_table(MANIFESTS, manifests).to_batches())))


def _alone(judge: Judge, outside: list[Row], references: list[Row]) -> Iterator[Row]:
    stopped = {row["layout"] for row in references if row["kept_because"] is not None}
    reached = {(row["layout"], row["component"], row["is_directory"]) for row in references if row["component"] is not None}
    completed: defaultdict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    silent: defaultdict[tuple[int, str], int] = defaultdict(int)
    for row in outside:
        if row["completes"] is not None:
            completed[row["layout"], row["unit"]][row["completes"]] = row["mtime_ns"]
        if row["is_appended"]:
            place = row["layout"], row["directory"]
            silent[place] = max(silent[place], row["mtime_ns"])
    alone = []
    for row in outside:
        layout, (*directories, last) = row["layout"], row["name"].split("/")
        is_candidate = row["role"] == Role.CANDIDATE.value and layout not in stopped
        is_reached = (layout, last, False) in reached or any((layout, each, True) in reached for each in directories)
        if row["part"] == Part.STAGED.value or row["role"] == Role.DIRECTORY.value or (is_candidate and not is_reached):
            times = completed[layout, row["unit"]] if layout is not None else {}
            numbers = {"numbers": list(times), "times": list(times.values())}
            alone.append({**row, **numbers, "silent_since_ns": silent.get((layout, row["directory"]))})
    yield from _rows(PLANNED, judge.alone(iter(_table(UNREFERRED, alone).to_batches())))


def _table(form: Form, rows: Iterable[Row]) -> Any:
    return form.table(tuple(row[name] for name in form.columns) for row in rows)


def _rows(form: Form, batches: Iterable[Any]) -> Iterator[Row]:
    for batch in batches:
        for row in form.rows(batch):
            yield dict(zip(form.columns, row, strict=True))


def _with_parents(directory: str) -> Iterator[str]:
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]
