"""Cache capacity: how much of the disk the cache may use, and what is evicted."""

from holdfast.capacity.disk import Disk
from holdfast.capacity.emptied import EmptiedDirectories
from holdfast.capacity.policy import Candidate, Limits, Usage, can_ever_fit, first_to_evict, to_free
from holdfast.capacity.room import RELEASE_SECONDS, Room
from holdfast.capacity.rooms import Rooms
