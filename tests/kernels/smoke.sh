# The smoke set of the namespaces engine, as root of a fresh machine with the project's build in /opt/sandbar/bin:
# every step says `ok NAME` or `failed NAME` with its output, and the last line counts them. No step has a time limit:
# whoever runs the machine bounds it.
PATH=/opt/sandbar/bin:$PATH
export SANDBAR_DATA=/var/lib/sandbar NO_COLOR=1
passed=0
failed=0

fail() { echo "expected $*"; return 1; }
has() { case $1 in *"$2"*) ;; *) fail "'$2' in: $1" ;; esac; }

step() {  # NAME FUNCTION
  if "$2" > /tmp/step.log 2>&1; then
    passed=$((passed + 1))
    echo "ok $1"
  else
    failed=$((failed + 1))
    echo "failed $1"
    sed 's/^/  | /' /tmp/step.log
  fi
}

# What a stopped server must leave as it was.
traces() {
  find /sys/fs/cgroup -type d | sort
  cut -d ' ' -f 2 /proc/mounts | sort
  ip link show | grep -o '^[0-9]*: [a-z0-9]*'
  losetup -a | cut -d : -f 1
  find /run/netns -type f 2> /dev/null
  ps -o pid,comm | grep -i sandbar | grep -v grep
  return 0
}

server() {
  cat > /etc/sandbar.toml << TOML || return 1
isolation = "namespaces"
allow_nesting_on_class1 = true
[limits]
pids = 64
disk_mb = 64
[network]
allow_addresses = ["198.51.100.1/32"]
[disk]
pool_bytes = 1073741824
[images]
default = "vercel/sandbox/node:24"
TOML
  sandbar up --config /etc/sandbar.toml --images /images || { tail -n 20 /var/lib/sandbar/log/*; return 1; }
}

create() {
  has "$(sandbar run --keep --vcpus 1 --timeout 6h --name box -- sh -c 'id -un; uname -r')" "$(uname -r)"
}

exec_() {
  has "$(sandbar exec box -- node -p '6*7')" 42 || return 1
  sandbar exec box -- sh -c 'exit 7'
  [ $? -eq 7 ] || fail "exit code 7"
}

root_inside() {
  has "$(sandbar exec --sudo box -- sh -c 'id -u; ls -l /dev/null; mount')" "overlay on / "
}

files() {
  head -c 300000 /dev/urandom > /tmp/in || return 1
  sandbar cp /tmp/in box:data.bin || return 1
  has "$(sandbar exec box -- sha256sum data.bin)" "$(sha256sum < /tmp/in | cut -d ' ' -f 1)" || return 1
  sandbar cp box:data.bin /tmp/out || return 1
  cmp /tmp/in /tmp/out
}

memory_limit() {
  said=$(sandbar exec box -- node -e 'const a = []; for (;;) a.push(Buffer.alloc(64 << 20, 1))' 2>&1)
  [ $? -eq 137 ] || fail "exit code 137, got: $said" || return 1
  has "$said" "out of memory" || return 1
  has "$(sandbar exec box -- echo alive)" alive
}

pids_limit() {
  said=$(sandbar exec box -- bash -c 'for i in $(seq 200); do sleep 1000 & done' 2>&1)
  has "$said" "Resource temporarily unavailable"
}

stop_resume() {
  sandbar stop box && has "$(sandbar exec box -- echo alive)" alive
}

disk_limit() {
  said=$(sandbar exec box -- sh -c 'head -c 200000000 /dev/zero > /var/tmp/big' 2>&1)
  [ $? -ne 0 ] || fail "no room for 200 MB" || return 1
  case $said in *"No space left"* | *"Disk quota"*) ;; *) fail "a full disk, got: $said" || return 1 ;; esac
  sandbar exec box -- rm /var/tmp/big
}

# The machine has no network: a web server on an address of its own stands for the world, which shows both answers.
network() {
  mkdir -p /www && echo "hello world" > /www/index.html || return 1
  ip addr add 198.51.100.1/32 dev lo && httpd -p 198.51.100.1:80 -h /www || return 1
  has "$(sandbar run --vcpus 1 --net allow-all -- curl -sS http://198.51.100.1/)" "hello world" || return 1
  has "$(sandbar exec box -- curl -sS http://198.51.100.1/)" egress_denied || return 1
  said=$(sandbar exec box -- curl -sS http://example.com/ 2>&1)
  [ $? -eq 6 ] || fail "a name that does not resolve, got: $said" || return 1
  has "$(sandbar net log box)" 198.51.100.1
}

snapshot() {
  sandbar exec box -- sh -c 'echo first > state' || return 1
  id=$(sandbar snapshot box) || return 1
  has "$(sandbar snapshot ls)" "$id" || return 1
  sandbar exec box -- sh -c 'echo second > state' || return 1
  has "$(sandbar run --from "$id" --vcpus 1 -- cat state)" first
}

fork() {
  sandbar snapshot box || return 1
  sandbar fork box copy || return 1
  has "$(sandbar exec copy -- cat state)" second || return 1
  sandbar exec copy -- sh -c 'echo third > state' || return 1
  has "$(sandbar exec box -- cat state)" second || return 1
  has "$(sandbar exec copy -- cat state)" third
}

# What a container runtime does, by hand: groups with limits of their own, namespaces, a fresh /proc, an overlay.
nesting() {
  sandbar run --keep --nesting --vcpus 1 --timeout 6h --name nest -- true || return 1
  cat > /tmp/nest.sh << 'END'
set -e
cd /sys/fs/cgroup
cat cgroup.controllers
echo "+memory +pids" > cgroup.subtree_control
mkdir pod
echo 20000000 > pod/memory.max
! echo max > memory.max 2> /dev/null
! mkdir ../x 2> /dev/null
cd /var/lib/containers
mkdir lower upper work merged
echo below > lower/f
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr overlay merged
rm merged/f
test -c upper/f
unshare -pfmn --mount-proc sh -c 'echo pids: /proc/[0-9]*; echo $$ > /sys/fs/cgroup/pod/cgroup.procs; cat /proc/self/cgroup'
sh -c 'echo $$ > /sys/fs/cgroup/pod/cgroup.procs; head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null' && exit 1
! umount /proc/cpuinfo 2> /dev/null
curl -sS http://198.51.100.1/
END
  sandbar cp /tmp/nest.sh nest:nest.sh || return 1
  said=$(sandbar exec --sudo nest -- sh nest.sh 2>&1) || fail "all of it, got: $said" || return 1
  for words in "memory pids" "pids: /proc/1" "0::/pod" egress_denied; do has "$said" "$words" || return 1; done
  sandbar rm nest
}

killed_server() {  # the machines outlive it, and the next one finds them
  sandbar exec -d box -- sleep 100000 || return 1
  kill -9 $(ps -o pid,args | awk '/sandbar [s]erve/ { print $1 }') || return 1
  sandbar up --config /etc/sandbar.toml --images /images || return 1
  has "$(sandbar exec box -- sh -c 'cat /proc/[0-9]*/cmdline' | tr '\0' ' ')" "sleep 100000"
}

# Its words are part of the report, and each fallback that it names for this kernel is checked by what is really there.
doctor() {
  said=$(sandbar doctor --images /images)
  code=$?
  echo "$said" | sed 's/^/    /' > /dev/ttyS1
  [ $code -eq 0 ] || fail "exit code 0, got $code" || return 1
  for words in "$(uname -r) (6.1 or newer is needed)" "cgroups                  v2" "image layers on loop devices" \
      "full btrfs quotas" "overlay layers at paths" "belong to nobody" "disk btrfs (quota groups), control groups v2" \
      "engine namespaces"; do
    echo "$said" | grep -qF "$words" || fail "'$words'" || return 1
  done
  ! echo "$said" | grep -qF "control groups v1" || fail "no word of version 1" || return 1
  cat /sys/block/loop*/loop/backing_file | grep -q '\.erofs$' || fail "image layers behind loop devices" || return 1
  has "$(sandbar exec box -- grep ' / overlay ' /proc/mounts)" "lowerdir=0:1" || return 1
  has "$(sandbar exec box -- stat -c %U /dev/null)" nobody
}

teardown() {
  sandbar rm box copy || return 1
  left=$(cat /sys/fs/cgroup/sandbar/*/*/*/cgroup.procs)
  [ -z "$left" ] || fail "no process in a machine's control group, got $left" || return 1
  sandbar down || return 1
  traces > /tmp/after
  diff /tmp/before /tmp/after
}

traces > /tmp/before
echo "kernel $(uname -r), $(nproc) cpus, controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
step "the server starts" server
step "create" create
step "exec: node, exit codes" exec_
step "root inside" root_inside
step "files in and out" files
step "limits: memory" memory_limit
step "limits: processes" pids_limit
step "stop and resume" stop_resume
step "limits: disk" disk_limit
step "network: allow-all, deny-all" network
step "snapshot" snapshot
step "fork" fork
step "nesting" nesting
step "kill -9 of the server" killed_server
step "doctor" doctor
step "teardown" teardown
[ $failed -eq 0 ] || tail -n 30 /var/lib/sandbar/serve.log /var/lib/sandbar/log/spawner.log | sed 's/^/  | /'
echo "done: $passed ok, $failed failed"
