"""The mountpoint as the kernel sees it: what is mounted where, mounting in one step, and the directory below the mount."""
