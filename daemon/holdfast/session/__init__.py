"""What the next daemon of a mount must know, because the kernel goes on using it: the session.

It lies beside the control socket, on tmpfs: it outlives the daemon, and need not outlive the machine, for the mount does
not either. A daemon may be killed at any moment, and everything here is right at every moment. Must not know: what nodes,
handles and requests are for.
"""

from holdfast.session.area import Identity, SessionArea, SessionTables
from holdfast.session.opens import NUMBER_MASK, OpenRecord, OpenTable, version_mark
from holdfast.session.records import NodeRecord, SessionRecords
from holdfast.session.unlinks import UnlinkTable

__all__ = [
    "NUMBER_MASK",
    "Identity",
    "NodeRecord",
    "OpenRecord",
    "OpenTable",
    "SessionArea",
    "SessionRecords",
    "SessionTables",
    "UnlinkTable",
    "version_mark",
]
