#!/bin/bash
# Shared set-up for the launcher (./sandbar) and the test command: what to install, how to say what is happening.
# Sourced, never run. Everything here talks on stderr; long steps write to a log that is named when they fail.
set -euo pipefail

# What the build needs, one line per reason.
BUILD_PACKAGES=(
  clang-19 cmake ninja-build mold ccache pkg-config
  libboost1.81-dev libboost-json1.81-dev libssl-dev zlib1g-dev libzstd-dev libfmt-dev libtomlplusplus-dev
  libyaml-cpp-dev libcli11-dev
  libsqlite3-dev libre2-dev libidn2-dev libseccomp-dev libcap-dev libnftables-dev libmnl-dev
)
# What preparing images and running machines needs.
RUN_PACKAGES=(mmdebstrap erofs-utils btrfs-progs ca-certificates openssl)
# Runtimes come as npm tarballs; whoever has npm already (it may come with another nodejs package) keeps theirs.
command -v npm >/dev/null 2>&1 || RUN_PACKAGES+=(npm)
# What the tests add.
TEST_PACKAGES=(
  clang-tidy-19 clang-format-19 libclang-rt-19-dev libgtest-dev libgmock-dev python3
  bubblewrap crun runc runsc qemu-system-x86 sqlite3 busybox-static curl iproute2 chromium openssl
)

SANDBAR_CACHE=${SANDBAR_CACHE:-/var/cache/sandbar}
SANDBAR_IMAGES=${SANDBAR_IMAGES:-$SANDBAR_CACHE/images}
export SANDBAR_CACHE SANDBAR_IMAGES
export CCACHE_DIR=${CCACHE_DIR:-$SANDBAR_CACHE/ccache}
# Paths inside the checkout do not count, so that a fresh clone elsewhere finds what another one compiled.
CCACHE_BASEDIR=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
export CCACHE_BASEDIR CCACHE_NOHASHDIR=1
LOGS=$SANDBAR_CACHE/log

say() { printf 'sandbar: %s\n' "$*" >&2; }

# refuse WHAT WHY FIX: the one way set-up says no.
refuse() {
  printf 'sandbar: %s\n  why: %s\n  fix: %s\n' "$1" "$2" "$3" >&2
  exit 2
}

elapsed() { printf '%d:%02d' $((($1) / 60)) $((($1) % 60)); }

# The newest line of a log that is worth showing, shortened: ninja's "[12/90]" or the recipe's own words.
last_line() {
  local line
  line=$(tail -c 4096 "$1" 2>/dev/null | tr '\r' '\n' | grep -av '^[[:space:]]*$' | tail -n 1) || true
  printf '%.100s' "$line"
}

# step LABEL LOG COMMAND…: runs it with its output in LOG, shows progress with elapsed time.
step() {
  local label=$1 log=$2
  shift 2
  start_job "$label" "$log" "$@"
  wait_jobs
}

JOB_PIDS=() JOB_LABELS=() JOB_LOGS=()
# Each job is a process group of its own, so that stopping one takes its compilers with it.
stop_jobs() {
  local pid
  for pid in "${JOB_PIDS[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
}
trap 'stop_jobs; exit 130' INT TERM
start_job() {
  local label=$1 log=$2
  shift 2
  mkdir -p "$(dirname "$log")"
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  JOB_PIDS+=($!)
  set +m
  JOB_LABELS+=("$label")
  JOB_LOGS+=("$log")
  [ -t 2 ] || say "$label …"
}

# Waits for all started jobs; one moving line on a terminal, a plain line every 20 s otherwise.
wait_jobs() {
  local begin=$SECONDS shown=$SECONDS i
  local -a finished=()
  while [ ${#finished[@]} -lt ${#JOB_PIDS[@]} ]; do
    local status=""
    for i in "${!JOB_PIDS[@]}"; do
      [[ " ${finished[*]-} " == *" $i "* ]] && continue
      if ! kill -0 "${JOB_PIDS[$i]}" 2>/dev/null; then
        finish_job "$i" "$begin"
        finished+=("$i")
        continue
      fi
      status+="${status:+ | }${JOB_LABELS[$i]}: $(last_line "${JOB_LOGS[$i]}" | cut -c1-60)"
    done
    if [ -n "$status" ]; then
      if [ -t 2 ]; then
        printf '\r\033[K%s' "$(printf 'sandbar: [%s] %s' "$(elapsed $((SECONDS - begin)))" "$status" | cut -c1-$(($(tput cols 2>/dev/null || echo 100) - 1)))" >&2
      elif [ $((SECONDS - shown)) -ge 20 ]; then
        shown=$SECONDS
        say "[$(elapsed $((SECONDS - begin)))] $status"
      fi
      sleep 0.2
    fi
  done
  JOB_PIDS=() JOB_LABELS=() JOB_LOGS=()
}

finish_job() {
  local i=$1 begin=$2 code=0
  wait "${JOB_PIDS[$i]}" || code=$?
  [ -t 2 ] && printf '\r\033[K' >&2
  if [ "$code" -eq 0 ]; then
    say "${JOB_LABELS[$i]}: done in $(elapsed $((SECONDS - begin)))"
    return 0
  fi
  say "${JOB_LABELS[$i]} failed (exit $code). The end of its log, ${JOB_LOGS[$i]}:"
  tail -n 25 "${JOB_LOGS[$i]}" | sed 's/^/  | /' >&2
  stop_jobs
  exit 1
}

# Prints those of the given packages that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${Status} ${Package}\n' 2>/dev/null | sed -n 's/^install ok installed //p')
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  # --no-remove: set-up must never take something away (two Boost versions exclude each other).
  apt-get install -q -y --no-install-recommends --no-remove "$@"
}

# install_missing PACKAGE…: only what is not there; nothing at all when everything is.
install_missing() {
  local -a missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  step "installing ${#missing[@]} packages" "$LOGS/apt.log" apt_install "${missing[@]}"
}

create_user() {
  id -u sandbar >/dev/null 2>&1 && return 0
  useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sandbar
  say "created the system user 'sandbar' (the daemon runs as it, without privileges)"
}

configure_and_build() {  # PRESET BUILD_DIR TARGET…
  local preset=$1 dir=$2
  shift 2
  cmake --preset "$preset" -B "$dir" && ninja -C "$dir" "$@"
}

# --- preconditions: everything that can be known before long work starts -------------------------------------------

check_platform() {
  [ "$(uname -s)" = Linux ] || refuse "this is not Linux" "machines are made of Linux namespaces" \
    "run it on a Debian 12 machine or in a virtual machine with one"
  [ "$(uname -m)" = x86_64 ] || refuse "this is a $(uname -m) machine" "images and system-call filters are for x86-64 so far" \
    "use an x86-64 machine"
  local major minor
  IFS=.- read -r major minor _ < <(uname -r)
  [ "$major" -gt 6 ] || { [ "$major" -eq 6 ] && [ "$minor" -ge 1 ]; } ||
    refuse "kernel $(uname -r) is too old" "id-mapped overlay layers need 6.1 or newer" \
      "apt-get install linux-image-amd64 && reboot   # Debian 12 has 6.1"
}

check_rights() {
  local out
  out=$(unshare --mount --net --pid --ipc --uts --fork sh -c 'mount -t tmpfs none /mnt' 2>&1) ||
    refuse "this environment may not make namespaces and mounts" "${out:-unshare failed}; a container needs more rights" \
      "run on the host, or start the container with: docker run --privileged --cgroupns=host …"
  local root=/sys/fs/cgroup
  [ -e "$root/cgroup.controllers" ] || root=$root/memory
  if ! mkdir "$root/sandbar-probe-$$" 2>/dev/null; then
    refuse "cgroups are not writable ($root)" "without them no limit can be enforced" \
      "run on the host, or start the container with: docker run --privileged --cgroupns=host …"
  fi
  rmdir "$root/sandbar-probe-$$"
}

# check_disk DIR MEGABYTES
check_disk() {
  local dir=$1 need=$2 have
  while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
  have=$(df -Pm "$dir" | awk 'NR == 2 {print $4}')
  [ "$have" -ge "$need" ] || refuse "not enough disk space in $dir: $have MB free" "the build and the first image need $need MB" \
    "free some space, or put the cache elsewhere: SANDBAR_CACHE=/big/disk/sandbar ${SANDBAR_CALLED:-./sandbar} …"
}

# check_port PORT: refused when something other than Sandbar listens on it.
check_port() {
  local hex
  hex=$(printf '%04X' "$1")
  grep -qhE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 0
  refuse "port $1 is taken" "another program listens on it" "${SANDBAR_CALLED:-./sandbar} ${2:-serve} --listen 127.0.0.1:$(($1 + 1))"
}
