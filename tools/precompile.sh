#!/bin/sh
# precompile.sh COMPILER … -o FILE -c HEADER: makes a precompiled header, and FILE.sum beside it.
# The compiler puts the checkout's path into a precompiled header, so one must never come out of the compiler cache. The
# sum, of the text that was compiled, is what ccache takes for it, so that files that use it are known in any checkout.
set -eu
"$@"
count=$#
while [ "$count" -gt 0 ]; do
  arg=$1
  shift
  count=$((count - 1))
  case $arg in
    -o) made=$1; shift; count=$((count - 1)) ;;
    -c) set -- "$@" -E -P ;;
    -MD) ;;
    -MT | -MF) shift; count=$((count - 1)) ;;
    *) set -- "$@" "$arg" ;;
  esac
done
"$@" | sha256sum | cut -c1-64 > "$made.sum"
