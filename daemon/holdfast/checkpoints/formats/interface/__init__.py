"""The interface of checkpoint formats: all that depends on which engine wrote a checkpoint.

A ``Format`` brings its conventions for names, and one or more layouts. A layout says what names mean and judges what it
knows; the drivers in ``reachability``, the daemon and Spark's jobs know only these interfaces. There are three:

- ``LocationLayout``: a directory shows by certain files in it to be a checkpoint location, and nothing outside refers into
  it. Each location is judged as a whole.
- ``GroupLayout``: names tell by themselves which group they belong to. Each group is judged as a whole.
- ``TreeLayout``: names tell by themselves what they are. Manifests below the root refer to files, of any job below the root;
  what none of them refers to is judged one by one. Formats that refer to each other's files have one layout together.

Everything here is pure: names, listings and manifests come in; plans go out. Names are bytes, relative to the root of a
listing, with ``/`` between their components. Layouts hold no state, and are sent to Spark's executors.
"""

from holdfast.checkpoints.formats.interface.format import FetchReferences, Format, ListDirectories, ReadAhead
from holdfast.checkpoints.formats.interface.locations import (
    Batch,
    Copied,
    Evidence,
    FinishedBatch,
    GroupLayout,
    LocationLayout,
    StatePartition,
)
from holdfast.checkpoints.formats.interface.terms import (
    LOGS,
    OTHER,
    TEMPORARY,
    UUID,
    Counted,
    EngineVersion,
    Fault,
    Found,
    Restore,
    StateFile,
    StatefulOperator,
    StateStore,
    Unknown,
)
from holdfast.checkpoints.formats.interface.trees import Completions, N, Retained, Role, TreeLayout, TreeName
