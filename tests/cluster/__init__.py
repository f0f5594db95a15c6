"""Several nodes on one machine, each with a daemon, a mount and a Spark worker: ``./run cluster``, and for tests.

A node is a set of name spaces (mount, UTS, PID) with an address of its own on the loopback, 127.0.0.11 and up. Its own are
the host name, ``/etc``, ``/run`` with the control socket and the mount, its processes, and the local store, which is on the
machine's disk and outlives the node. All nodes have the same paths, the same store behind a line of their own, and a
directory in common, as a shared file system. Needs root; nothing of it is seen from outside, and all of it ends with the
process that has made it.
"""
