"""Tests of ``holdfast.checkpoints``, without a mount."""
