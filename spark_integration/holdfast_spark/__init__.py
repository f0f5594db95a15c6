"""Holdfast for Spark: environment, session settings, pipeline and demo."""
