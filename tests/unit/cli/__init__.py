"""Tests of ``holdfast.cli``, without a mount."""
