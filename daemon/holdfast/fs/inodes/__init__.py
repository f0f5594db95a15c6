"""Inodes: nodes by kernel id, with their names, backing files and open files."""
