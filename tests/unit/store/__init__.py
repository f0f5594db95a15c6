"""Tests of ``holdfast.store``, without a mount."""
