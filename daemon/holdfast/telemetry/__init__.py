"""What happened: events for people, counters for machines. A leaf: of Holdfast it imports only errors."""

from holdfast.telemetry.counters import Counters
from holdfast.telemetry.events import Event, EventLog

__all__ = ["Counters", "Event", "EventLog"]
