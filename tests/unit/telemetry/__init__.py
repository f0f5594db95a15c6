"""Tests of ``holdfast.telemetry``, without a mount."""
