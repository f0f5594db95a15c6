"""Tests of ``holdfast.transfer``, without a mount."""
