"""The screen of ``top``: what goes on, live, on the whole terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, Sparkline, Static
from textual.worker import get_current_worker

from holdfast.cli.activity import Groups, Lately, Processes, Tally
from holdfast.cli.top_figures import Figures, cells, transfer_line
from holdfast.control.client import ControlClient
from holdfast.control.messages import OperationsInfo, Status, TransferInfo
from holdfast.errors import HoldfastError
from holdfast.system.text import printable

_COLUMNS = ("time", "calls/s", "average", "99 %", "longest", "failed", "hits", "misses", "fetched", "stores")
_SORTS: dict[str, Callable[[tuple[str, Tally]], object]] = {
    "time": lambda row: -row[1].seconds,
    "calls/s": lambda row: -row[1].count,
    "average": lambda row: -row[1].seconds / row[1].count,
    "99 %": lambda row: -row[1].within(0.99),
    "longest": lambda row: -row[1].longest,
    "failed": lambda row: -row[1].errors,
    "hits": lambda row: -row[1].hits,
    "misses": lambda row: -row[1].misses,
    "fetched": lambda row: -row[1].fetched_bytes,
    "stores": lambda row: -row[1].store_seconds,
    "name": lambda row: row[0],
}
_BY = ("operation", "process", "place", "path")
_SPANS = 10  # seconds that the table is about
_HISTORY = 60
_ROWS = 200
_AGAIN_SECONDS = 2.0
_HELP = """[b]holdfast top[/b]: the requests of the last ten seconds, answered by the daemon

  [b]1 2 3 4[/b]  by operation, process, query or working directory, path
  [b]g[/b]        the next of these
  [b]s[/b]        sort by the next column; a click on a column sorts by it
  [b]n[/b]        sort by name
  [b]/[/b]        show only what has this text in it; Esc: show all again
  [b]space[/b]    pause and go on
  [b]r[/b]        begin anew
  [b]h ?[/b]      this help
  [b]q[/b]        quit

What the kernel does by itself is not seen: reads and writes in
passthrough, and names that it knows already. While this runs, each
request costs the daemon some microseconds more."""


class Top(App[None]):
    """The live view. ``connect`` makes a client; it is asked again when the daemon was away."""

    TITLE = "holdfast top"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  # textual declares it so
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "DataTable"
    CSS = """
    Screen { layers: below above; }
    #figures { height: 7; padding: 0 1; }
    #facts { width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    #rates { width: 44; }
    .-narrow #rates { display: none; }
    Sparkline { height: 3; }
    DataTable { height: 1fr; }
    #transfers { height: auto; max-height: 8; padding: 0 1; border-top: solid $primary; }
    #filter { display: none; }
    #filter.shown { display: block; }
    #said { height: 1; padding: 0 1; background: $surface; color: $text-muted; }
    #said.bad { background: $error; color: $text; }
    #help { display: none; layer: above; padding: 1 2; border: round $primary; background: $surface; height: auto; }
    #help.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("h,question_mark", "help", "Help", key_display="h"),
        Binding("g", "group", "Group"),
        *(Binding(str(at + 1), f"group_by('{name}')", show=False) for at, name in enumerate(_BY)),
        Binding("s", "sort", "Sort"),
        Binding("n", "sort_by('name')", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "unfilter", show=False),
        Binding("space", "pause", "Pause"),
        Binding("r", "renew", "Renew"),
    ]

    def __init__(self, connect: Callable[[], ControlClient], processes: Processes) -> None:
        super().__init__()
        self._connect = connect
        self._processes = processes
        self._groups = Groups("/", (), processes)
        self._by = _BY[0]
        self._sort = "time"
        self._lately = Lately(self._groups.by[self._by], _SPANS)
        self._figures = Figures(_HISTORY)
        self._is_paused = False
        self._lost = 0
        self._calls = 0
        self._turned = time.monotonic()

    def compose(self) -> ComposeResult:
        """Lay the parts out."""
        yield Static(_HELP, id="help")
        with Horizontal(id="figures"):
            yield Static("", id="facts", markup=False)
            with Vertical(id="rates"):
                yield Static("", id="rate", markup=False)
                yield Sparkline([0.0], summary_function=max)
        yield Input(placeholder="only what has this text in it", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static("", id="transfers", markup=False)
        yield Static("", id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to watch."""
        self._show_columns()
        self._watch()
        self._poll()
        self.set_interval(1.0, self._turn)

    # --- what comes from the daemon, in threads -------------------------------------------------------------------------

    @work(thread=True)
    def _watch(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                with self._connect() as daemon:
                    for seen in daemon.watch_operations():
                        if worker.is_cancelled:
                            return
                        self.call_from_thread(self.saw, seen)
            except HoldfastError:  # the other thread tells
                pass
            time.sleep(_AGAIN_SECONDS)

    @work(thread=True)
    def _poll(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                with self._connect() as daemon:
                    while not worker.is_cancelled:
                        self.call_from_thread(self.learned, daemon.status(), daemon.transfers())
                        time.sleep(1.0)
            except HoldfastError as problem:
                self.call_from_thread(self.missed, str(problem))
            time.sleep(_AGAIN_SECONDS)

    def saw(self, seen: OperationsInfo) -> None:
        """Take operations in."""
        if self._is_paused:
            return
        self._lost += seen.lost
        self._calls += len(seen.operations) + seen.lost
        for operation in seen.operations:
            self._lately.add(operation)

    def learned(self, status: Status, transfers: Sequence[TransferInfo]) -> None:
        """Take in the daemon's status, and the transfers under way."""
        if self._figures.status is None or status.pid != self._figures.status.pid:
            self._groups = Groups(status.mountpoint, status.remotes, self._processes)
            self._begin_anew()
        self._figures.learn(status, time.monotonic())
        self.query_one("#facts", Static).update(self._figures.facts())
        lines = [printable(transfer_line(each, self._groups)) for each in transfers[:7]]
        more = [f"… and {len(transfers) - 7} more"] if len(transfers) > 7 else []
        self.query_one("#transfers", Static).update("\n".join([*lines, *more]) or "no transfers are under way")
        self._say()

    def missed(self, problem: str) -> None:
        """Show that the daemon does not answer."""
        said = self.query_one("#said", Static)
        said.update(printable(f"not connected, trying again: {problem}"))
        said.set_class(True, "bad")

    # --- what is shown ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._is_paused:
            return
        now = time.monotonic()
        self._figures.count(self._calls / max(0.001, now - self._turned))
        self._calls, self._turned = 0, now
        self.query_one("#rate", Static).update(self._figures.rate())
        self.query_one(Sparkline).data = self._figures.history()
        self._show_rows()
        self._lately.turn()

    def _begin_anew(self) -> None:
        self._lately = Lately(self._groups.by[self._by], _SPANS)
        self._lost = 0
        self._show_rows()

    def _show_columns(self) -> None:
        table = self._table()
        table.clear(columns=True)
        table.add_column(self._by, key="name")
        for name in _COLUMNS:
            table.add_column(f"{name} ▼" if name == self._sort else name, key=name)
        self._show_rows()

    def _show_rows(self) -> None:
        words = self.query_one("#filter", Input).value.lower()
        rows = [row for row in self._lately.tallies().items() if words in row[0].lower()]
        rows.sort(key=_SORTS[self._sort])  # type: ignore[arg-type]  # all values of one column can be compared
        table = self._table()
        at = table.cursor_row
        table.clear()
        for key, tally in rows[:_ROWS]:
            table.add_row(Text(printable(key)), *(Text(cell, justify="right") for cell in cells(tally, self._lately.spans)))
        table.move_cursor(row=min(at, max(0, len(rows) - 1)))
        self._say()

    def _say(self) -> None:
        said = self.query_one("#said", Static)
        words = [f"by {self._by}, sorted by {self._sort}, the last {self._lately.spans} s"]
        if self._is_paused:
            words.append("PAUSED")
        if self._lost:
            words.append(f"{self._lost} operations came too fast to be seen")
        said.update("; ".join(words))
        said.set_class(False, "bad")

    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    # --- keys ------------------------------------------------------------------------------------------------------------

    def action_group(self) -> None:
        """Group by what comes next."""
        self.action_group_by(_BY[(_BY.index(self._by) + 1) % len(_BY)])

    def action_group_by(self, name: str) -> None:
        """Group by ``name``."""
        self._by = name
        self._begin_anew()
        self._show_columns()

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(_SORTS)
        self.action_sort_by(names[(names.index(self._sort) + 1) % len(names)])

    def action_sort_by(self, name: str) -> None:
        """Sort by a column."""
        self._sort = name
        self._show_columns()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column whose head was clicked."""
        self.action_sort_by(str(event.column_key.value))

    def action_filter(self) -> None:
        """Ask for a text."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_unfilter(self) -> None:
        """Show all again, and no help."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("shown")
        self.query_one("#help").remove_class("shown")
        self._table().focus()

    def on_input_changed(self) -> None:
        """Apply the filter, which has changed."""
        self._show_rows()

    def on_input_submitted(self) -> None:
        """Keep the filter, and let keys be commands again."""
        self._table().focus()

    def action_pause(self) -> None:
        """Pause, or go on."""
        self._is_paused = not self._is_paused
        self._say()

    def action_renew(self) -> None:
        """Forget what was seen."""
        self._begin_anew()

    def action_help(self) -> None:
        """Show the keys, or hide them."""
        self.query_one("#help").toggle_class("shown")
