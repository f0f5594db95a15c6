"""Tests of ``holdfast.standbys``, without a mount."""
