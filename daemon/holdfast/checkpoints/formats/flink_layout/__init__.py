"""The common part of Flink's checkpoints and Holdfast's own: directories, names, and the rules for deleting files.

Only the metadata differs, and its first bytes tell which format it is of. A job of either kind may refer to files of the
other. This is no format: ``flink`` and ``own`` plug their readers of metadata into it.
"""

from holdfast.checkpoints.formats.flink_layout.layout import LAYOUT, FlinkLayout
from holdfast.checkpoints.formats.flink_layout.names import FlinkKind, FlinkName, parse_flink, parse_flink_directory
