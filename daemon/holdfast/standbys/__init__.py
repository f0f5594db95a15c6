"""Standby copies: state of partitions that run on another node, fetched here before it is needed.

Each daemon decides by itself which partitions it stands by for, from the reports of the nodes.
"""
