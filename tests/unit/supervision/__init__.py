"""Tests of ``holdfast.supervision``, without a mount."""
