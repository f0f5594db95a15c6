"""Checkpoints of plain processes, in the layout of FLINK-10930, through a mount: begin, add, commit, list, restore, drop."""

from holdfast.checkpoints.formats.own.writer.checkpoint import Checkpoint
from holdfast.checkpoints.formats.own.writer.job import Job

__all__ = ["Checkpoint", "Job"]
