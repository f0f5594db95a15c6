"""What happened: events for people, counters for machines. A leaf: it imports nothing of Holdfast's but errors."""

from holdfast.telemetry.counters import Counters
from holdfast.telemetry.events import Event, EventLog

__all__ = ["Counters", "Event", "EventLog"]
