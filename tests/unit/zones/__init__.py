"""Tests of ``holdfast.zones``, without a mount."""
