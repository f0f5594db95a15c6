"""Tools that tests fetch or build once, and where they are kept."""
