#!/bin/bash
# `make bench`: the release build against bubblewrap, crun and runc on the same rootfs, in one run, and through the SDK.
# Prints medians and ratios with the budgets beside them; an exceeded budget is said, not an error. Root, Debian 12.
#   bench/run.sh [create] [steps] [sdk] [net] [code] [terminal] [snapshot] [engines] [idle]   default: create steps sdk net code terminal.   ROUNDS=50, IDLE=1000 by default.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. tools/setup.sh

what=${*:-create steps sdk net code terminal}
rounds=${ROUNDS:-50}
bin=${SANDBAR_BIN:-build/release/bin/sandbar}
[ "$(id -u)" -eq 0 ] || refuse "the benchmark needs root" "it makes machines and mounts" "sudo make bench"
[ -x "$bin" ] || refuse "no release build" "$bin is missing" "make build"
install_missing bubblewrap crun runc python3 clang-19
command -v node >/dev/null || install_missing nodejs
images/build.sh --check node24 || step "image node24" "$LOGS/images.log" images/build.sh node24
if [[ " $what " =~ " sdk "|" terminal " && ! -e tests/clients/node_modules/.package-lock.json ]]; then
  step "npm packages" "$LOGS/npm-clients.log" npm ci --prefix tests/clients --no-audit --no-fund
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/sandbar-bench.XXXXXX")
chmod 0755 "$work"  # the daemon is another user
server=
cleanup() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true
    "$bin" down --data "$work/data" >/dev/null 2>&1 || true
  fi
  for m in "$work/rootfs" "$work/writable"; do
    if mountpoint -q "$m"; then umount "$m"; fi
  done
  for m in "$work"/layers/*/; do
    if mountpoint -q "$m"; then umount "$m"; fi
  done
  rm -rf "$work"
}
trap cleanup EXIT

# The layers of the image that the sandboxes get, stacked for the others: the same files, the same filesystems.
manifest=$(grep -lF '"name":"vercel/sandbox/node:24"' "$SANDBAR_IMAGES"/manifests/*)
lowers=
for layer in $(grep -oE '"layers":\[[^]]*\]' "$manifest" | grep -oE '[0-9a-f]{64}'); do
  mkdir -p "$work/layers/$layer"
  mount -t erofs -o ro "$SANDBAR_IMAGES/layers/$layer.erofs" "$work/layers/$layer"
  lowers=${lowers:+$lowers:}$work/layers/$layer
done
mkdir -p "$work/rootfs" "$work/data" "$work/state" "$work/bundle"
mount -t overlay -o "ro,lowerdir=$lowers" overlay "$work/rootfs"

# One bundle for crun and runc: all namespaces, no terminal, /bin/true.
(cd "$work/bundle" && runc spec)
python3 - "$work/bundle/config.json" "$work/rootfs" <<'PYTHON'
import json, sys
path, rootfs = sys.argv[1:]
with open(path) as f:
    spec = json.load(f)
spec["process"]["terminal"] = False
spec["process"]["args"] = ["/bin/true"]
spec["root"] = {"path": rootfs, "readonly": True}
with open(path, "w") as f:
    json.dump(spec, f)
PYTHON

# crun refuses hosts with both cgroup versions: for the others the second one is out of sight, so they use the first.
apart=()
if mountpoint -q /sys/fs/cgroup/unified; then
  apart=(unshare --mount --propagation private sh -c 'umount /sys/fs/cgroup/unified && exec "$@"' sh)
fi
cat > "$work/bench.toml" <<'TOML'
[limits]
max_running = 1100
[pool]
node24 = 4
TOML
# start_server LEVEL: sets port, server and token.
start_server() {
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  SANDBAR_LOG=$1 "$bin" serve --listen "127.0.0.1:$port" --data "$work/data" --config "$work/bench.toml" > "$work/server.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    sleep 0.1
  done
  token=$("$bin" token --data "$work/data") || { cat "$work/server.log" >&2; exit 1; }
}
start_server info

printf 'machine: %s, %s cores, kernel %s, load %s\n\n' "$(. /etc/os-release && echo "$PRETTY_NAME")" "$(nproc)" "$(uname -r)" "$(cut -d' ' -f1-3 /proc/loadavg)"
if [[ " $what " == *" create "* ]]; then
  mkdir -p build/bench
  clang++-19 -std=c++23 -O2 -Wall -Wextra -Werror bench/create.cc -o build/bench/create
  "${apart[@]}" build/bench/create --api "127.0.0.1:$port" --token "$token" --pid "$server" --rounds "$rounds" \
    --cold vercel/sandbox/node:24 --pooled node24 \
    -- bubblewrap bwrap --unshare-all --die-with-parent --ro-bind "$work/rootfs" / --proc /proc --dev /dev --tmpfs /tmp /bin/true \
    -- crun crun --root "$work/state/crun" run --bundle "$work/bundle" bench-crun \
    -- runc runc --root "$work/state/runc" run --bundle "$work/bundle" bench-runc
  echo
fi
if [[ " $what " == *" steps "* ]]; then
  # The same creates once more, by a server that writes down what each step took.
  mkdir -p build/bench
  clang++-19 -std=c++23 -O2 -Wall -Wextra -Werror bench/create.cc -o build/bench/create
  kill "$server" && wait "$server" || true
  start_server debug
  build/bench/create --api "127.0.0.1:$port" --token "$token" --pid "$server" --rounds "$rounds" --cold vercel/sandbox/node:24 --pooled node24 > /dev/null
  python3 - "$work/server.log" <<'PYTHON'
import re, statistics, sys
creates = {}
for line in open(sys.argv[1]):
    found = re.search(r"create of \S+: ([\d.]+) ms: (.*)", line)
    if found:
        steps = [s.rsplit(" ", 1) for s in found.group(2).strip().split(", ")]
        creates.setdefault(tuple(name for name, _ in steps), []).append([float(found.group(1))] + [float(ms) for _, ms in steps])
for names, rows in creates.items():
    medians = [statistics.median(column) for column in zip(*rows)]
    print(f"create, server's side, median of {len(rows)}: {medians[0]:.2f} ms = " + " + ".join(f"{n} {m:.2f}" for n, m in zip(names, medians[1:])))
PYTHON
  kill "$server" && wait "$server" || true
  start_server info
  echo
fi
if [[ " $what " == *" sdk "* ]]; then
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" node bench/sdk.mjs
fi
if [[ " $what " == *" terminal "* ]]; then
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" node bench/terminal.mjs
fi
if [[ " $what " == *" net "* ]]; then
  # The egress engine itself, linked from the build; it makes its own network namespaces.
  mkdir -p build/bench
  lib=$(dirname "$(dirname "$bin")")
  clang++-19 -std=c++23 -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-missing-designated-field-initializers \
    -D_GNU_SOURCE -DBOOST_ASIO_NO_DEPRECATED -DBOOST_ASIO_SEPARATE_COMPILATION -Isrc ${BENCH_FLAGS:-} bench/net.cc -o build/bench/net \
    "$lib"/libsb_egress.a "$lib"/libsb_http.a "$lib"/libsb_crypto.a "$lib"/libsb_wire.a "$lib"/libsb_async.a "$lib"/libsb_base.a "$lib"/libsb_asio.a \
    -lboost_json -lboost_container -lssl -lcrypto -lre2 -lidn2 -lz -lfmt -lnftables -pthread
  build/bench/net
fi
if [[ " $what " == *" snapshot "* ]]; then
  command -v zstd >/dev/null || install_missing zstd
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" node bench/snapshot.mjs --data "$work/data"
fi
if [[ " $what " == *" code "* ]]; then
  images/build.sh --check universal || step "image universal" "$LOGS/images.log" images/build.sh universal
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" ROUNDS="$rounds" node bench/code.mjs
fi
if [[ " $what " == *" engines "* ]]; then
  # Their own writable layer above the same files.
  mkdir -p build/bench "$work/upper" "$work/overlay" "$work/writable" "$work/engines"
  mount -t overlay -o "lowerdir=$lowers,upperdir=$work/upper,workdir=$work/overlay" overlay "$work/writable"
  lib=$(dirname "$(dirname "$bin")")
  clang++-19 -std=c++23 -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -Isrc bench/restore.cc -o build/bench/restore \
    "$lib"/libsb_spawner.a "$lib"/libsb_os.a "$lib"/libsb_protocol.a "$lib"/libsb_base.a -lboost_json -lboost_container -lz -lseccomp -lcap -lnftables -lmnl -lfmt
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" ROUNDS="${ROUNDS:-5}" "${apart[@]}" node bench/engines.mjs --data "$work/data" \
    --rootfs "$work/writable" --work "$work/engines" --restore build/bench/restore --bin "$(dirname "$bin")" --kernel "$(dirname "$SANDBAR_IMAGES")/kernel"
fi
if [[ " $what " == *" idle "* ]]; then
  SANDBAR_URL="http://127.0.0.1:$port" SANDBAR_TOKEN="$token" node bench/idle.mjs --data "$work/data" --pid "$server" --count "${IDLE:-1000}"
fi
