"""Tests of ``holdfast.remote``, without a mount."""
