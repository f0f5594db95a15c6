"""Tests of ``holdfast.mount``, without a mount."""
