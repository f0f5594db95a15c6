"""Tests of ``holdfast.kernel``, without a mount."""
