"""Telemetry: events for people, counters for machines. A leaf: of Holdfast it imports only errors and text."""

from holdfast.telemetry.counters import Counters
from holdfast.telemetry.events import Event, EventLog, JoinedEvents, RareEvents
from holdfast.telemetry.latencies import Histogram, Latencies
from holdfast.telemetry.loop_lag import LoopLag
from holdfast.telemetry.metrics import MetricsPage
from holdfast.telemetry.operation_feed import (
    OBSERVED,
    SLOW_NS,
    Notes,
    Observed,
    OperationFeed,
    SlowOperations,
    follow_log_level,
    waiting_for,
)
from holdfast.telemetry.private_files import LineFormatter, PrivateLogFile
