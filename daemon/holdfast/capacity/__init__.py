"""How much of the disk the cache may use, and what goes when it is too much."""

from holdfast.capacity.policy import Candidate, Limits, Usage, bytes_to_free, choose
from holdfast.capacity.room import Room

__all__ = ["Candidate", "Limits", "Room", "Usage", "bytes_to_free", "choose"]
