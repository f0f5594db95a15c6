"""Working directories: one per process, the same across its restarts, held by one process at a time."""

from holdfast.workdirs.holder_process import Process, Volume, is_own_namespace
from holdfast.workdirs.service import Workdir, Workdirs
from holdfast.workdirs.sweep import WorkdirSweeps
from holdfast.workdirs.usage import UsageWalks
