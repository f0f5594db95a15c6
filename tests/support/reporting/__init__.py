"""What a run of the tests says at its end."""
