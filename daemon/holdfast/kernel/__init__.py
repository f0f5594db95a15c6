"""The FUSE protocol beyond what pyfuse3 supports: passthrough of data, immediate replies, and taking a mount over.

Importing this package loads the C module (``native_module``), which must happen before pyfuse3 is imported. The file system
uses it through one ``Connection``. ``docs/internals/kernel.md`` explains how it works.

It must not know the file system: nodes are numbers here, and files are descriptors.
"""

from holdfast.kernel.connection import Connection
from holdfast.kernel.invalidator import Invalidator, inode_notice
from holdfast.kernel.native_module import NATIVE_MODULE
from holdfast.kernel.probe import PASSTHROUGH, TAKEOVER, Machine, forecast, takeover_forecast
from holdfast.kernel.protocol import OPCODE_LIMIT, Fallocation, InitFlag, Opcode, OpenFlag
