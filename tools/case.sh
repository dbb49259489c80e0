#!/bin/sh
# case.sh DIR PROGRAM CASE: what came of one gtest case when its whole program ran in this run of ctest (tools/cases.py);
# otherwise runs the case. The name in DIR has % for /.
set -eu
dir=$1 program=$2 case=$3
run=
[ ! -e "$dir/run" ] || read -r run < "$dir/run"
[ "$run" = "$PPID" ] || exec "$program" "--gtest_filter=$case"
name=$case
while :; do
  case $name in
    */*) name="${name%%/*}%${name#*/}" ;;
    *) break ;;
  esac
done
[ ! -e "$dir/passed/$name" ] || exit 0
if [ -e "$dir/skipped/$name" ]; then
  echo "[  SKIPPED ] $case"
  cat "$dir/skipped/$name"
  exit 0
fi
[ ! -e "$dir/failed/$name" ] || { cat "$dir/failed/$name"; exit 1; }
echo "$program ended before this case"
exit 1
