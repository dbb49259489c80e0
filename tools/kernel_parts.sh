#!/bin/sh
# Debian's cloud kernel and a few of its modules in the order of their loading: shared by kernel.sh (guests of microVMs)
# and test_kernels.sh (a machine for the tests). Sourced, never run.
set -eu

# debian_kernel CACHE: prints where the .deb is; downloaded once.
debian_kernel() {
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: *//p' | head -n 1)
  [ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64: apt-get update" >&2; return 1; }
  mkdir -p "$1/debs"
  ls "$1/debs/$package"_*.deb > /dev/null 2>&1 || {
    echo "kernel: downloading $package" >&2
    (cd "$1/debs" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2)
  }
  ls "$1/debs/$package"_*.deb | tail -n 1
}

# find_module UNPACKED NAME
find_module() {
  find "$1/lib/modules" -name "$(echo "$2" | tr - _).ko" -o -name "$(echo "$2" | tr _ -).ko" | head -n 1
}

# add_module UNPACKED OUT NAME [LIST]: the module and, before it, those that it names as needed, into OUT/modules and
# OUT/LIST (modules.list). Debian's kernel 6.1 has them uncompressed.
add_module() {
  [ -n "$(find_module "$1" "$3")" ] || return 0   # built in
  mkdir -p "$2/modules"
  touch "$2/${4:-modules.list}"
  [ ! -e "$2/modules/$3.ko" ] || return 0
  for needed in $(tr '\0' '\n' < "$(find_module "$1" "$3")" | sed -n 's/^depends=//p' | tr , ' '); do
    add_module "$1" "$2" "$(echo "$needed" | tr - _)" "${4:-modules.list}"
  done
  cp "$(find_module "$1" "$3")" "$2/modules/$3.ko"
  echo "$3.ko" >> "$2/${4:-modules.list}"
}
