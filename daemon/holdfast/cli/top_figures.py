"""The figures of ``top``: the daemon as a whole, rates since the last look, cells of a row."""

from __future__ import annotations

from collections import deque

from holdfast.cli.activity import Groups, Tally
from holdfast.cli.output import counted, duration, latency, size
from holdfast.control.messages import Status, TransferInfo

_BAR = 20


class Figures:
    """The state of the daemon, its rates, and its operations per second for the last ``kept`` seconds."""

    def __init__(self, kept: int) -> None:
        self.status: Status | None = None
        self._calls: deque[float] = deque([0.0], maxlen=kept)
        self._learned = 0.0
        self._rates = {"hits": 0.0, "misses": 0.0, "bytes_fetched": 0.0, "bytes_uploaded": 0.0}

    def learn(self, status: Status, now: float) -> None:
        """Take in a status, at a time in seconds."""
        former = self.status
        if former is not None and former.pid == status.pid and now > self._learned:
            passed = now - self._learned
            self._rates = {name: (status.counters[name] - former.counters[name]) / passed for name in self._rates}
        self.status, self._learned = status, now

    def count(self, calls_per_second: float) -> None:
        """Take in how many operations there were in the last second."""
        self._calls.append(calls_per_second)

    def history(self) -> list[float]:
        """Return the operations per second, oldest first."""
        return list(self._calls)

    def rate(self) -> str:
        """Return the line above the history."""
        return f"{self._calls[-1]:,.0f} operations/s (most {max(self._calls):,.0f})"

    def facts(self) -> str:
        """Return the lines about the daemon: the first says what is wrong with it, if anything is."""
        status = self.status
        if status is None:
            return ""
        hits, misses = status.counters["hits"], status.counters["misses"]
        most_bytes = status.max_bytes * (1 + len(status.other_disks))
        limit = f" of {size(most_bytes)} {bar(status.cached_bytes / most_bytes)}" if most_bytes else ""
        by_state = sorted(
            status.remotes.items(), key=lambda item: item[1].up
        )  # those that are down first: a line has an end
        stores = ", ".join(f"{name} {'up' if store.up else 'DOWN'}" for name, store in by_state)
        unsent = f"{counted(status.unsent_files, 'file')} UNSENT" if status.unsent_files else "nothing unsent"
        rates = self._rates
        fetched, sent = (size(round(rates[name])) for name in ("bytes_fetched", "bytes_uploaded"))
        return "\n".join(
            (
                f"WRONG  {'; '.join(status.problems)}" if status.problems else "nothing is wrong",
                f"{status.node}  {status.mountpoint}  up {duration(status.uptime_seconds)}  daemon {status.pid}  "
                f"{status.data_mode[:40]}",
                f"cache  {size(status.cached_bytes)}{limit} in {counted(status.cached_files, 'file')}, "
                f"{size(status.free_bytes)} free",
                f"opens  {rates['hits']:,.1f} hits/s, {rates['misses']:,.1f} misses/s; "
                f"{_percent(hits, hits + misses)} hits since the start",
                f"moved  {fetched}/s fetched, {sent}/s sent; {unsent}",
                f"stores {stores or 'none'}",
            )
        )


def cells(tally: Tally, seconds: float) -> tuple[str, ...]:
    """Return the cells of a row that covers so many ``seconds``."""
    return (
        latency(tally.seconds),
        f"{tally.count / seconds:,.1f}",
        latency(tally.seconds / tally.count),
        latency(tally.within(0.99)),
        latency(tally.longest),
        str(tally.errors or "-"),
        str(tally.hits or "-"),
        str(tally.misses or "-"),
        size(tally.fetched_bytes) if tally.fetched_bytes else "-",
        latency(tally.store_seconds) if tally.store_seconds else "-",
    )


def transfer_line(transfer: TransferInfo, groups: Groups) -> str:
    """Return a line about a transfer under way."""
    word = {"fetch": "fetching", "send": "sending "}.get(transfer.direction, transfer.direction)
    ahead = " (ahead)" if transfer.in_background else ""
    if transfer.direction == "send" or not transfer.size_bytes:
        return f"{word} {' ' * (_BAR + 2)} {size(transfer.size_bytes):>10}  {groups.short(transfer.path)}{ahead}"
    done = bar(transfer.done_bytes / transfer.size_bytes)
    return f"{word} {done} {size(transfer.size_bytes):>10}  {groups.short(transfer.path)}{ahead}"


def bar(share: float) -> str:
    """Return a bar that is filled to ``share``."""
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return f"[{'█' * filled}{'·' * (_BAR - filled)}]"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole} %" if whole else "no"
