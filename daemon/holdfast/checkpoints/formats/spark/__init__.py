"""Spark: checkpoints of Structured Streaming with their state, and the logs of file sinks (Spark 3.5 to 4.3).

Sources: S ``CheckpointFileManager``, ``HDFSMetadataLog``, ``RocksDBFileManager``; Hadoop's ``FileOutputCommitter``.
"""

from __future__ import annotations

import re

from holdfast.checkpoints.formats.interface import Format
from holdfast.checkpoints.formats.spark.batch_log import partitions_now
from holdfast.checkpoints.formats.spark.layouts import Queries, SinkLogs
from holdfast.checkpoints.formats.spark.read_ahead import read_ahead
from holdfast.checkpoints.formats.spark.states import state_file, stateful_operator
from holdfast.checkpoints.formats.spark.wrapping import TEMPORARY_NAME
from holdfast.zones import NameKind

FORMAT = Format(
    name="spark",
    name_kinds={
        NameKind.TEMPORARY: ("**/*.tmp", "**/_temporary/**"),
        NameKind.WRITE_ONCE: (
            "**/offsets/<n>",
            "**/commits/<n>",
            "**/sources/<n>/<n>",
            "**/sources/<n>/<n>.compact",
            "**/_spark_metadata/<n>",
            "**/_spark_metadata/<n>.compact",
            "**/metadata",
            "**/_metadata/**",
            "**/_stateSchema/**",
        ),
        NameKind.IMMUTABLE: ("**/SSTs/*-<uuid>.sst", "**/logs/*-<uuid>.log", "**/<n>_<uuid>.*"),
    },
    temporary_names=(TEMPORARY_NAME,),
    attempt_names=(TEMPORARY_NAME,),
    logs=(re.compile(rb"(.+)/(?:offsets|commits|sources/[0-9]+|state/[0-9]+/_metadata)", re.DOTALL),),
    read_ahead=read_ahead,
    partitions=(re.compile(rb"((?:.+?/)?state/[0-9]{1,10}/[0-9]{1,10})(?:/.*)?", re.DOTALL),),
    state_file=state_file,
    stateful_operator=stateful_operator,
    partitions_now=partitions_now,
    locations=Queries(),
    groups=SinkLogs(),
)

__all__ = ["FORMAT"]
