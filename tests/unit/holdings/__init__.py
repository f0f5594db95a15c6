"""Tests of ``holdfast.holdings``, without a mount."""
