"""Tests of ``holdfast.workdirs``, without a mount."""
