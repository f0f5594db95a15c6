"""The operations on queries, by their names in the table."""

KILL = "goes on after SIGKILL"
VERIFY = "`verify --spark`, all bytes"
SWEEP = "sweep, with nothing lost"
CLONE = "goes on from a clone that was rewound"
REWIND = "rewind"
LINKS = "state by link"
CLASSES = "classes of the driver before it, and options of the JVM"
READ = "`statestore` and `state-metadata` read it"
PLACEMENT = "placement reaches the coordinator"
SUBMITTED_PYTHON = "Python job by the properties file"
SUBMITTED_JAVA = "Java job by the properties file"
CONNECT = "job of a Spark Connect server with the properties file"
IN_ORDER = (KILL, VERIFY, SWEEP, CLONE, REWIND, LINKS, CLASSES, READ, PLACEMENT, SUBMITTED_PYTHON, SUBMITTED_JAVA, CONNECT)
"""The order in the table, where the other versions follow."""
_OTHER_VERSION = "goes on from a clone of "


def other_version(release: str) -> str:
    """Return the operation that goes on from what another Spark, earlier or later, has left."""
    return f"{_OTHER_VERSION}{release}'s"


def is_of_other_version(operation: str) -> bool:
    """Say whether an operation goes on from what another Spark has left."""
    return operation.startswith(_OTHER_VERSION)
