#!/bin/sh
# The first process of a guest. Its root is the host's, by hostfs, which it can't change; $disk is its own, on /var/tmp.
# $run is a directory of the host's in which it finds what to do, and leaves the status.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /run/host
mount -t hostfs -o "$host$run" none /run/host
. /run/host/environment
for module in fs/quota/quota_tree fs/quota/quota_v2 drivers/block/loop fs/fuse/fuse fs/overlayfs/overlay; do
  python3 -c 'import ctypes, os, sys; sys.exit(ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b"", 0))' \
    "$KERNEL_DIRECTORY/usr/lib/uml/modules/$(uname -r)/kernel/$module.ko" # finit_module(2)
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t "$disk" ${options:+-o "$options"} /dev/ubda /var/tmp
chmod 1777 /var/tmp
for directory in $HOST_DIRECTORIES; do # those that are below /tmp or /var/tmp
  [ -e "$directory" ] || { mkdir -p "$directory" && mount -t hostfs -o "ro,$host$directory" none "$directory"; }
done
mount -t fusectl none /sys/fs/fuse/connections
ip link set lo up
hostname guest
{ cat /etc/hosts; echo '127.0.0.1 guest'; } >/run/hosts # a Java server asks for the address of the host's name
mount --bind /run/hosts /etc/hosts
ulimit -n 65536
cd "$CHECKOUT"
sh /run/host/command
echo $? >/run/host/status
sync
echo o >/proc/sysrq-trigger
sleep 60
