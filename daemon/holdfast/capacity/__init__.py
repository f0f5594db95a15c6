"""Cache capacity: how much of the disk the cache may use, and what is evicted."""

from holdfast.capacity.policy import Candidate, Limits, Usage, bytes_to_free, can_ever_fit, first_to_evict
from holdfast.capacity.room import Room

__all__ = ["Candidate", "Limits", "Room", "Usage", "bytes_to_free", "can_ever_fit", "first_to_evict"]
