"""Attacks by users with a shell and no rights. Each test names in its docstring what the attacker would gain."""
