"""Telemetry: events for people, counters for machines. A leaf: of Holdfast it imports only errors and text."""

from holdfast.telemetry.counters import Counters
from holdfast.telemetry.events import Event, EventLog
from holdfast.telemetry.latencies import Histogram, Latencies
from holdfast.telemetry.log_format import LineFormatter
from holdfast.telemetry.loop_lag import LoopLag
from holdfast.telemetry.metrics import MetricsPage
from holdfast.telemetry.operation_feed import OBSERVED, Notes, Observed, OperationFeed, waiting_for
from holdfast.telemetry.private_files import PrivateLogFile
from holdfast.telemetry.rare_events import RareEvents
from holdfast.telemetry.request_log import follow_log_level
from holdfast.telemetry.slow_operations import SLOW_NS, SlowOperations
