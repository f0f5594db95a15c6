"""Holdfast on Kubernetes: the chart, the image, and examples."""
