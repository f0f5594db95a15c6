"""What happened: events for people, counters for machines. A leaf: of Holdfast it imports only errors and text."""

from holdfast.telemetry.counters import Counters
from holdfast.telemetry.events import Event, EventLog
from holdfast.telemetry.log_format import LineFormatter
from holdfast.telemetry.private_files import PrivateLogFile
from holdfast.telemetry.rare_events import RareEvents

__all__ = ["Counters", "Event", "EventLog", "LineFormatter", "PrivateLogFile", "RareEvents"]
