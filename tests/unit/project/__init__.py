"""Tests of the project's own files: docs, pins, versions."""
