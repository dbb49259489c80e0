#!/bin/bash
# `make test-upgrade REV=…`: machines of another revision's programs under the server of this build, and the way back
# (tests/faults/upgrade.test.mjs). Root.
#   tools/test_upgrade.sh [REV]     REV: a tag or a commit
# Without REV it is the newest tag before HEAD, else the newest commit before HEAD whose title begins with "release"; both
# along first parents. Without one of them there is nothing to compare with: it says so and ends with 77.
# The programs of REV are built once, as that revision's `make build` does it, and kept in $SANDBAR_CACHE/previous/<sha>/bin.
# This build's are those of SANDBAR_BIN, else of build/release.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. tools/setup.sh
[ "$(id -u)" -eq 0 ] || refuse "this needs root" "it makes real machines" "sudo make test-upgrade REV=…"

previous_release() {
  git describe --tags --abbrev=0 --first-parent HEAD^ 2>/dev/null ||
    git log --first-parent --format='%H %s' HEAD^ | awk '$2 ~ /^release:?$/ && !found {found = $1} END {print found}'
}
rev=${1:-$(previous_release || true)}
if [ -z "$rev" ]; then
  say "SKIPPED: upgrades from the release before. No tag and no commit titled 'release…' before HEAD; name one: make test-upgrade REV=…"
  exit 77
fi
sha=$(git rev-parse --verify --quiet "$rev^{commit}") ||
  refuse "there is no revision '$rev' here" "its programs are built from this repository" "git fetch, or another REV"

new=${SANDBAR_BIN:-$PWD/build/release/bin/sandbar}
[ -x "$new" ] || refuse "there is no program $new" "it is the later side of the upgrade" "make build, or SANDBAR_BIN=…/bin/sandbar"
previous=$SANDBAR_CACHE/previous/$sha

# The revision's own `make build` knows the names of its programs. They are put in place when all of them are there.
build_previous() {
  CCACHE_BASEDIR=$work/source make -C "$work/source" --no-print-directory build &&
    rm -rf "$previous" && mkdir -p "$previous" && mv "$work/source/build/release/bin" "$previous/bin"
}
remove_work() {
  git worktree remove --force "$work/source" 2>/dev/null || true
  rm -rf "$work"
}
if [ ! -x "$previous/bin/sandbar" ]; then
  check_disk "$SANDBAR_CACHE" 4000
  install_missing "${BUILD_PACKAGES[@]}"
  mkdir -p "$SANDBAR_CACHE/previous"
  work=$(mktemp -d "$SANDBAR_CACHE/previous/build.XXXXXX")
  trap remove_work EXIT
  git worktree add --quiet --detach "$work/source" "$sha"
  step "compiling ${sha:0:12}" "$LOGS/build-previous.log" build_previous
  remove_work
  trap - EXIT
fi

install_missing "${RUN_PACKAGES[@]}"
images/build.sh --check node24 >/dev/null 2>&1 || step "image node24" "$LOGS/images.log" images/build.sh node24
say "machines of $rev (${sha:0:12}) under the server of $new"
exec env SANDBAR_UPGRADE_FROM="$previous/bin/sandbar" SANDBAR_UPGRADE_TO="$new" SANDBAR_BIN="$new" \
  node --test --test-reporter=spec tests/faults/upgrade.test.mjs
