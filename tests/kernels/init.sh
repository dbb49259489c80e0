#!/bin/busybox sh
# First program of the machine that test_kernels.sh boots: from the initial memory disk to the real one, or, there, the
# smoke set. What the set says goes to the second serial port, everything else to the console.
# When this script fails, the kernel ends the machine.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
if [ -e /modules.list ]; then
  while read -r module; do /bin/busybox insmod "/modules/$module" || true; done < /modules.list
  /bin/busybox mount -t ext4 -o noatime /dev/vda /root
  for dir in dev sys proc; do /bin/busybox umount /$dir; done
  exec /bin/busybox switch_root /root /sbin/init
fi
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/user.slice   # as in a login: not in the root group
echo $$ > /sys/fs/cgroup/user.slice/cgroup.procs
mount -t tmpfs tmpfs /run
mkdir /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
modprobe loop
sh /smoke.sh < /dev/null > /dev/ttyS1
sync
poweroff -f
