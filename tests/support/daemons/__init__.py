"""Nodes with a real daemon, and daemons with a fault."""
