"""Working directories: one for each process, the same across its restarts, held by one at a time."""

from holdfast.workdirs.holders import Process
from holdfast.workdirs.service import Workdir, Workdirs

__all__ = ["Process", "Workdir", "Workdirs"]
