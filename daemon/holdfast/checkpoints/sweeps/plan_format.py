"""A plan as it is stored: JSON lines, so that any program can make one, read one, or have one executed.

The first line is the header, each further line one thing that would go, in the order of deletion. ``docs/checkpoints.md``,
"The format of a plan", describes the fields; they are only ever added. Nothing here does more than bytes to structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from holdfast.checkpoints.reachability import Kept, Phase, Plan, Policy, Reason
from holdfast.errors import PlanError

FORMAT = 1
SWEEP = "sweep"
DROP = "drop"
REWIND = "rewind"
WORKDIRS = "workdirs"
_LONGEST_LINE_BYTES = 2**20
_DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NONE = "this is no plan of Holdfast's, or a damaged one"


class StoredPolicy(msgspec.Struct, frozen=True):
    """The ages and numbers that the plan was made with."""

    grace_seconds: float
    abandoned_seconds: float
    min_batches_to_retain: int

    @classmethod
    def of(cls, policy: Policy) -> StoredPolicy:
        """Return the stored form of a policy."""
        return cls(policy.grace_ns / 10**9, policy.abandoned_ns / 10**9, policy.min_batches_to_retain)

    def policy(self) -> Policy:
        """Return the policy. Raises ``ConfigurationError`` for what can't be one."""
        return Policy(int(self.grace_seconds * 10**9), int(self.abandoned_seconds * 10**9), self.min_batches_to_retain)


class StoredKept(msgspec.Struct, frozen=True):
    """Something that could not be judged, and so stays."""

    scope: str
    why: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a plan. ``root`` and ``checkpoints`` are relative to the zone; ``made_ns`` is by the store's clock.

    ``kind`` is ``SWEEP``, ``DROP`` (of ``checkpoints``), ``REWIND`` (to the one in ``checkpoints``) or ``WORKDIRS`` (a sweep
    of working directories).
    """

    holdfast_plan: int = FORMAT
    id: str
    kind: str
    zone: str
    root: str
    store: str
    made_ns: int
    policy: StoredPolicy
    checkpoints: list[str] = []
    kept: list[StoredKept] = []
    count: int
    size_bytes: int


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would be deleted. ``name`` is relative to the root; ``reason`` and ``phase`` are names in the enums."""

    name: str
    reason: str
    about: str
    size_bytes: int
    mtime_ns: int
    etag: str = ""
    phase: str = "file"

    @classmethod
    def of(cls, name: str, reason: Reason, about: str, size_bytes: int, mtime_ns: int, phase: Phase, *, etag: str) -> Item:
        """Return the stored form of an entry."""
        return cls(
            name=name,
            reason=reason.name.lower(),
            about=about,
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            etag=etag,
            phase=phase.name.lower(),
        )

    @property
    def why(self) -> str:
        """The reason, for people."""
        return f"{Reason[self.reason.upper()].value}: {self.about}" if self.about else Reason[self.reason.upper()].value

    def step(self) -> Phase:
        """Return the phase in which it is deleted."""
        return Phase[self.phase.upper()]


_decode_header = msgspec.json.Decoder(Header).decode  # here, as two threads must not meet a type for the first time
_decode_item = msgspec.json.Decoder(Item).decode


class StoredPlan(msgspec.Struct, frozen=True):
    """A whole plan."""

    header: Header
    items: tuple[Item, ...]

    def lines(self) -> Iterator[bytes]:
        """Return the lines of the stored form."""
        return lines(self.header, self.items)


def lines(header: Header, items: Iterable[Item]) -> Iterator[bytes]:
    """Yield the lines of the stored form of a plan, whose items need not be held all at once."""
    encoder = msgspec.json.Encoder()
    yield encoder.encode(header) + b"\n"
    for item in items:
        yield encoder.encode(item) + b"\n"


def items_of(plan: Plan, etags: dict[bytes, str]) -> tuple[Item, ...]:
    """Return the stored form of a plan's entries; a name that is no text is left out, and so stays."""
    found = ((text_of(entry.name), entry) for entry in plan.entries)
    return tuple(
        Item.of(name, each.reason, each.about, each.size_bytes, each.mtime_ns, each.phase, etag=etags.get(each.name, ""))
        for name, each in found
        if name is not None
    )


def kept_of(kept: Iterable[Kept]) -> list[StoredKept]:
    """Return the stored form of what was kept."""
    return [StoredKept(each.scope.decode(errors="backslashreplace"), each.why) for each in kept]


def read_plan(stream: BinaryIO) -> StoredPlan:
    """Read a stored plan. Raises ``PlanError`` for what is none, or is cut off."""
    header = read_header(stream.readline(_LONGEST_LINE_BYTES))
    try:
        items = tuple(_checked(_decode_item(line)) for line in iter(lambda: stream.readline(_LONGEST_LINE_BYTES), b""))
    except (*_DAMAGED, KeyError) as problem:
        raise PlanError(f"{_NONE}: {problem}") from None
    if len(items) != header.count:
        raise PlanError(f"the plan {header.id} is cut off: {len(items)} of {header.count} entries are there")
    return StoredPlan(header, items)


def read_header(line: bytes) -> Header:
    """Read the first line of a stored plan. Raises ``PlanError`` for what is none."""
    try:
        header = _decode_header(line)
    except _DAMAGED as problem:
        raise PlanError(f"{_NONE}: {problem}") from None
    if header.holdfast_plan != FORMAT:
        raise PlanError(f"this plan has format {header.holdfast_plan}, this Holdfast reads format {FORMAT}")
    return header


def _checked(item: Item) -> Item:
    """Return the item. Raises ``KeyError`` for an unknown reason or phase."""
    Reason[item.reason.upper()], item.step()
    return item


def text_of(name: bytes) -> str | None:
    """Return a name as plans have it; None for one that is no text, which no plan can have."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
