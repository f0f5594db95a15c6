"""Tests of ``holdfast.maintenance``, without a mount."""
