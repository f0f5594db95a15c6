"""Tests of what tests and benchmarks are made with."""
