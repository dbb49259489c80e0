#!/bin/bash
# Fuzz targets (fuzz/*.cc, libFuzzer with address and undefined-behaviour sanitizers).
#   tools/fuzz.sh build            builds them in build/fuzz
#   tools/fuzz.sh one NAME SECS    seeds, then SECS seconds of one target
#   tools/fuzz.sh run SECS         every target in turn
# Inputs that were found worth keeping stay in ${SANDBAR_CACHE:-/var/cache/sandbar}/fuzz; a crash is written there too.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
CACHE=${SANDBAR_CACHE:-/var/cache/sandbar}/fuzz

build() {
  cmake --preset asan -B build/fuzz -DSB_FUZZ=ON -DSB_SANITIZE=address,undefined,fuzzer-no-link
  ninja -C build/fuzz fuzzers
}

one() {
  local name=$1 seconds=$2 found=$CACHE/$1
  mkdir -p "$found"
  "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
    -artifact_prefix="$CACHE/crash-$name-" "$found" "fuzz/corpus/$name" 2>&1 | tail -n 20
}

case ${1:-} in
  build) build ;;
  one) one "$2" "$3" ;;
  run)
    build
    for target in fuzz/*.cc; do
      name=$(basename "$target" .cc)
      echo "fuzz: $name"
      one "$name" "$2"
    done
    ;;
  *)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
