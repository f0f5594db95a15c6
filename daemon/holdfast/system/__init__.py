"""Small parts that any program could use: processes, environments, whole files, printable text."""
