"""The session: what the next daemon of a mount must know, because the kernel continues to use it.

It is stored beside the control socket, on tmpfs. It outlives the daemon, and need not outlive a reboot, because the mount
does not either. A daemon may be killed at any moment, so everything here is consistent at every moment. Must not know:
what nodes, handles and requests are for.
"""

from holdfast.session.area import Identity, SessionArea, SessionTables
from holdfast.session.execution import ExecutionMark
from holdfast.session.open_table import NUMBER_MASK, OpenRecord, OpenTable, version_mark
from holdfast.session.records import NodeRecord, SessionRecords
from holdfast.session.unlinks import UnlinkTable
