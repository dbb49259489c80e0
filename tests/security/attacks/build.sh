#!/bin/sh
# Builds the static program that the security tests upload: build.sh OUTPUT
set -eu
here=$(dirname "$0")
out=${1:?usage: build.sh OUTPUT}
exec "${CC:-cc}" -std=gnu17 -O1 -g0 -static -Wall -Wextra -Werror -D_GNU_SOURCE -o "$out" "$here"/*.c
