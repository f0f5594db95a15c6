"""Tests of the Spark side, without Spark."""
