"""The processes that watch over the daemon and start it again: systemd or the supervisor, and the watchdog that tells them."""
