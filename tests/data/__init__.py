"""Samples that real engines wrote."""
