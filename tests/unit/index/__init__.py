"""Tests of ``holdfast.index``, without a mount."""
