"""Tests of ``holdfast.control``, without a mount."""
