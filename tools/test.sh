#!/bin/bash
# `make test`: installs what the tests need, builds with sanitizers, runs everything through ctest, whose summary is
# the last thing printed. `--all` adds the thread sanitizer, g++ 12, long fuzzing and upgrades from the last release. `--engines` runs the behavioural
# suites on every engine that this machine can use instead, and writes the table of docs/engines.md.
# Root, Debian 12, no terminal needed. Caches live outside the checkout, in ${SANDBAR_CACHE:-/var/cache/sandbar}.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. tools/setup.sh

ALL=
[ "${1:-}" = --all ] && ALL=1
ENGINES=
[ "${1:-}" = --engines ] && ENGINES=1
[ "$(id -u)" -eq 0 ] || refuse "the tests need root" "they make real machines and try to break out of them" "sudo make test"
check_platform
check_rights
check_disk "$SANDBAR_CACHE" 6000
mkdir -p "$LOGS"

install_missing "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
[ -z "$ALL" ] || install_missing g++-12
if ! command -v node >/dev/null || [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 18 ]; then
  install_missing nodejs
fi
create_user
export npm_config_cache=${npm_config_cache:-$SANDBAR_CACHE/npm} npm_config_update_notifier=false
for lock in sdk/package-lock.json tests/*/package-lock.json examples/package-lock.json examples/*/package-lock.json; do
  [ -e "$lock" ] || continue
  dir=$(dirname "$lock")
  [ -e "$dir/node_modules/.package-lock.json" ] && [ "$dir/node_modules/.package-lock.json" -nt "$lock" ] ||
    step "npm packages of $dir" "$LOGS/npm-${dir//\//-}.log" npm ci --prefix "$dir" --no-audit --no-fund
done

# Machines of class 3 get Debian's kernel here: nothing is built for it. One without this list is of an older version.
[ -e "$(dirname "$SANDBAR_IMAGES")/kernel/containers.list" ] || step "guest kernel" "$LOGS/kernel.log" tools/kernel.sh cloud

# The recipes run beside the compiler.
for image in ${SANDBAR_TEST_IMAGES:-node24 node22 python3.13 bun universal data podman}; do
  images/build.sh --check "$image" >/dev/null 2>&1 || todo="${todo:-} $image"
done
[ -z "${todo:-}" ] || start_job "images$todo" "$LOGS/images.log" images/build.sh $todo
start_job "compiling (asan)" "$LOGS/build-asan.log" configure_and_build asan build/asan
start_job "compiling (release)" "$LOGS/build.log" configure_and_build release build/release sandbar sandbar-spawner sandbar-scanner sandbar-guest
wait_jobs
if compgen -G 'fuzz/*.cc' >/dev/null; then
  step "compiling (fuzz)" "$LOGS/build-fuzz.log" tools/fuzz.sh build
fi

# Survivable bugs are fatal here; leaks too. A root-owned image cache is shared with the daemon under test.
export SANDBAR_FATAL_BUGS=1 SANDBAR_IMAGES
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
if [ -n "$ALL" ]; then
  step "compiling (tsan)" "$LOGS/build-tsan.log" configure_and_build tsan build/tsan unit_tests
  step "compiling (g++ 12)" "$LOGS/build-gcc.log" configure_and_build gcc build/gcc
  ctest --test-dir build/tsan -L unit --output-on-failure
  ctest --test-dir build/gcc -L unit --output-on-failure
  tools/fuzz.sh run 60
  # 77: there is no release yet, and it said so.
  SANDBAR_BIN=$PWD/build/asan/bin/sandbar tools/test_upgrade.sh ${REV:-} || [ $? -eq 77 ]
fi
[ -z "$ENGINES" ] || SANDBAR_BIN=$PWD/build/asan/bin/sandbar exec node tools/test_engines.mjs --write
# One test more than there are processors: a suite waits now and then for machines to start and to end. With many more,
# programs with sanitizers miss deadlines of the product.
at_once=$(($(nproc) + 1))
[ "$at_once" -le 24 ] || at_once=24
exec ctest --test-dir build/asan -j "$at_once" --output-on-failure --no-tests=error
