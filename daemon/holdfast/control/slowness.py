"""Reasons why operations took long, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.system.text import shown
from holdfast.telemetry import Observed, SlowOperations

_MOST = 5
_NS = 1e9
_LEAST_SHARE = 0.02  # waits shorter than this part of the whole are not worth a word
_WAITS = {
    "fetch": "waiting for its bytes from the store",
    "hash": "hashing the file",
    "lock": "waiting for another operation on the same file",
    "turn": "waiting for earlier requests of the same user (limits.requests_per_user)",
}


def slow_reasons(slow: SlowOperations, path: bytes, now: float) -> Iterator[str]:
    """Yield a sentence for each of the last slow operations on ``path``, a path in the tree. ``now``: since the epoch."""
    for each in slow.about(path, _MOST):
        yield _sentence(each, path, now)


def _sentence(each: Observed, path: bytes, now: float) -> str:
    seconds = each.duration_ns / _NS
    where = "" if each.path == path else f" of {shown(each.path)}"
    ago = max(0.0, now - each.time_ns / _NS)
    caused = f" by process {each.pid}" if each.pid else ""
    waits = [
        f"{took:.2f} s {_WAITS[what]}"
        for what, took in sorted(each.notes.waits.items(), key=lambda item: -item[1])
        if took >= _LEAST_SHARE * seconds
    ]
    notes = each.notes
    if notes.store_requests:
        word = "a request" if notes.store_requests == 1 else f"{notes.store_requests} requests"
        waits.append(f"{notes.store_seconds:.2f} s for {word} to stores")
    because = "; ".join(waits) or "none of it waiting for a store, a hash, a lock or a turn: look at the disk and the load"
    return f"Slow: {_age(ago)} ago, {each.operation}{where}{caused} took {seconds:.2f} s: {because}."


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
