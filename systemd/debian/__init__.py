"""The Debian package: ``./run deb`` builds it. What is put into it besides the program lies beside this file."""
