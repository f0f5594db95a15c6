"""The processes that watch over the daemon and start it again: systemd or the keeper, and the watchdog that tells them."""
