"""Tests of ``holdfast.capacity``, without a mount."""
