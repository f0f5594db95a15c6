"""Small parts that any program could use: processes, environments, which file it is, whole files, printable text."""
