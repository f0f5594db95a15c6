"""Works on the mount and checks what it sees, in the container: ``working.py NAME STATE``, until ``STATE.stop`` is there.

Writes to the file STATE after each round: their number, and the seconds of the longest.
Holds a file open, locked and mapped all the time.
"""

import fcntl
import mmap
import os
import sys
import time

name, state = sys.argv[1:]
place, objects = f"/mnt/holdfast/work/{name}", f"/mnt/holdfast/checkpoints/{name}"
os.makedirs(place, exist_ok=True)
os.makedirs(objects, exist_ok=True)
held = open(f"{place}/held", "w+b", buffering=0)  # noqa: SIM115 it stays open
held.write(bytes(4096))
fcntl.flock(held, fcntl.LOCK_EX)
view = mmap.mmap(held.fileno(), 4096)
rounds, longest = 0, 0.0
while not os.path.exists(f"{state}.stop"):
    rounds, began = rounds + 1, time.monotonic()
    text = b"%32d" % rounds
    held.seek(0)
    held.write(text)
    assert view[: len(text)] == text
    for directory, last in ((place, "new"), (objects, str(rounds % 50))):
        with open(f"{directory}/tmp", "wb") as file:
            file.write(text)
        os.rename(f"{directory}/tmp", f"{directory}/{last}")
        with open(f"{directory}/{last}", "rb") as file:
            assert file.read() == text
        assert last in os.listdir(directory)
    longest = max(longest, time.monotonic() - began)
    with open(f"{state}.new", "w") as file:
        file.write(f"{rounds} {longest:.3f}\n")
    os.rename(f"{state}.new", state)
