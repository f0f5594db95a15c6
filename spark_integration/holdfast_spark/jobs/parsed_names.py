"""The meaning that each name of a listing has by itself, parsed in the first pass of every job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Listed
from holdfast.checkpoints.reachability.division import Part, evidence_of, part_of
from holdfast_spark.arrow_forms import LISTED

NAMED = LISTED.with_columns(
    directory="string",
    claims="array<string>",
    claim_layouts="array<bigint>",
    marks="array<string>",
    part="string",
    layout="bigint",
    unit="string",
    role="string",
    completes="bigint",
    is_appended="boolean",
)
"""``claims``: directories that this name shows to be checkpoint locations, each by a mark, if names with all other marks of
the layout do so too. The rest holds for names that lie in no such location: ``layout`` is the position of their tree or
group layout, ``unit`` the job of a tree or the group; ``role`` (of ``Role``), ``completes`` (the checkpoint that is complete
because this manifest is there) and ``is_appended`` are of trees."""


class Namer:
    """Reads names, by the given checkpoint formats. Travels to executors."""

    def __init__(self, formats: Formats = FORMATS) -> None:
        self._formats = formats

    def name_all(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read names (``LISTED`` in, ``NAMED`` out)."""
        for batch in batches:
            yield from NAMED.batches(self.named(row) for row in LISTED.rows(batch))

    def named(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Read the name in a row."""
        listed = listed_of(row)
        evidence = evidence_of(listed, self._formats)
        directory = row[0].rpartition("/")[0]
        claims = [each.evidence.location.decode() for each in evidence]
        of_claims = (claims, [each.layout for each in evidence], [each.evidence.mark for each in evidence])
        part, layout, name, group = part_of(listed, self._formats)
        if part is Part.GROUP:
            return *row, directory, *of_claims, part.value, layout, group.decode(), None, None, None
        if name is None:
            return *row, directory, *of_claims, part.value, None, None, None, None, None
        completes = name.checkpoint if name.completes and not listed.is_directory else None
        of_tree = (layout, name.job.decode(), name.role.value, completes, name.is_appended)
        return *row, directory, *of_claims, part.value, *of_tree


def listed_of(row: tuple[Any, ...]) -> Listed:
    """Return a row of ``LISTED`` as the judges know it."""
    name, size_bytes, mtime_ns, _, is_directory = row
    return Listed(name.encode(), size_bytes, mtime_ns, is_directory)
