"""The processes that watch over the daemon, start it again and hold its mount, and the watchdog that tells them."""
