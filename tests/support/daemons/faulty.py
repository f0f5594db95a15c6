"""holdfastd with faults: ``python -m tests.support.daemons.faulty FAULT[,FAULT…] [holdfastd's arguments]``.

A fault is a function in ``tests.support.daemons.faults``, and has its name; its docstring says what it breaks, and by which
files, named in the environment, a test drives it. A test sets ``Node.faults``.
"""

from __future__ import annotations

import sys

from holdfast import daemon
from tests.support.daemons.faults import cache_trace, call_trace, crash_points, file_ids, kernel, requests, stores, takeover

FAULTS = {
    fault.__name__: fault
    for fault in (
        crash_points.crash_at_point,
        file_ids.ids_beside_inode_numbers,
        kernel.no_prune,
        kernel.no_takeover,
        kernel.no_mount_beneath,
        kernel.no_passrights,
        kernel.no_invalidator,
        kernel.data_by_python,
        kernel.late_statvfs,
        kernel.dies_while_a_name_waits,
        takeover.late_takeover,
        takeover.unmounted_at_start,
        takeover.no_reopening,
        takeover.rebooted,
        requests.hang_on_signal,
        requests.poisonous_names,
        requests.late_answers,
        requests.short_patience,
        requests.no_settling,
        requests.overtaken_creation,
        requests.pausing_walk,
        requests.no_data_by_python,
        stores.waiting_store,
        stores.hung_library,
        stores.toy_format,
        cache_trace.trace_cached_files,
        call_trace.trace_calls,
    )
}


def main() -> None:
    """Apply the faults that the first argument names, and be holdfastd with the others."""
    names = sys.argv.pop(1).split(",")
    if unknown := sorted(set(names) - set(FAULTS)):
        sys.exit(f"there is no fault {', '.join(unknown)}; there are {', '.join(sorted(FAULTS))}")
    for name in names:
        FAULTS[name]()
    daemon.run()


if __name__ == "__main__":
    main()
