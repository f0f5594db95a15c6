"""The kernel's side of the mount, beyond what pyfuse3 has words for: passthrough of data, and taking a mount over.

Importing this package loads the C module (``native_module``), which must happen before pyfuse3 is imported. It adds to a
mount is used through one ``Connection``. ``docs/internals/kernel.md`` tells how it works.

It must not know what the file system is: nodes, names and policy are numbers and descriptors here.
"""

from holdfast.kernel.connection import Connection
from holdfast.kernel.fallocation import Fallocation
from holdfast.kernel.invalidator import Invalidator
from holdfast.kernel.probe import PASSTHROUGH, TAKEOVER, Machine, forecast, takeover_forecast
from holdfast.kernel.protocol import InitFlag, Opcode, OpenFlag

__all__ = [
    "PASSTHROUGH",
    "TAKEOVER",
    "Connection",
    "Fallocation",
    "InitFlag",
    "Invalidator",
    "Machine",
    "Opcode",
    "OpenFlag",
    "forecast",
    "takeover_forecast",
]
