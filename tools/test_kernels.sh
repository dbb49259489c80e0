#!/bin/bash
# `make test-kernels`: boots Debian 12's stock kernel (6.1, cgroup v2) in an emulated machine with this build inside and
# runs tests/kernels/smoke.sh there. Fails when a step fails or the machine ends without having reported. Root.
#   tools/test_kernels.sh [--bin DIR] [FILE.deb]    other binaries than build/release/bin, another kernel package
# SANDBAR_MACHINE_LIMIT bounds the machine's life (default 45m): emulation is slow, and a machine that hangs must end.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. tools/setup.sh
. tools/kernel_parts.sh
bin=build/release/bin
[ "${1:-}" != --bin ] || { bin=$2; shift 2; }
[ "$(id -u)" -eq 0 ] || refuse "this needs root" "image layers are for root alone" "sudo make test-kernels"
check_platform
check_disk "$SANDBAR_CACHE" 4000
install_missing "${RUN_PACKAGES[@]}" qemu-system-x86 busybox-static e2fsprogs
images/build.sh --check node24 >/dev/null 2>&1 || step "image node24" "$LOGS/images.log" images/build.sh node24
deb=${1:-$(debian_kernel "$SANDBAR_CACHE")}

work=$(mktemp -d "$SANDBAR_CACHE/kernels.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root early=$work/early
dpkg-deb -x "$deb" "$work/deb"
release=$(ls "$work/deb/lib/modules")

# add_program TARGET_DIR FILE…: with the libraries that it names.
add_program() {
  local dir=$1 file library
  shift
  for file in "$@"; do
    install -D -m 755 "$file" "$root$dir/$(basename "$file")"
    for library in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do   # none: a static one
      [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library"
    done
  done
}

build_root() {
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{dev,proc,sys,run,tmp,root,etc,mnt,var/lib,var/tmp}
  mkdir -p "$root"/images/{layers,manifests}
  chmod 1777 "$root/tmp" "$root/var/tmp"
  local dir applet layer
  for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
  add_program /usr/bin "$(command -v busybox)"
  for applet in $(busybox --list | grep -vx busybox); do ln -sf /usr/bin/busybox "$root/usr/bin/$applet"; done
  ln -s /usr/bin/busybox "$root/usr/sbin/modprobe"   # where the kernel looks for it
  add_program /usr/sbin "$(command -v mkfs.btrfs)"
  add_program /opt/sandbar/bin "$bin"/sandbar{,-spawner,-scanner,-guest}
  cp -a "$work/deb/lib/modules" "$root/usr/lib/modules"
  busybox depmod -b "$root" "$release"
  printf '%s\n' root:x:0:0::/root:/bin/sh sandbar:x:990:990::/nonexistent:/bin/false > "$root/etc/passwd"
  printf '%s\n' root:x:0: sandbar:x:990: > "$root/etc/group"
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  cp "$SANDBAR_IMAGES"/manifests/{,runtime-}node24.json "$root/images/manifests/"
  for layer in $(grep -oh '"layers":\[[^]]*\]' "$root"/images/manifests/*.json | grep -o '[0-9a-f]\{64\}' | sort -u); do
    cp "$SANDBAR_IMAGES/layers/$layer.erofs" "$root/images/layers/"
  done
  chmod 700 "$root/images/layers"
  cp tests/kernels/smoke.sh "$root/smoke.sh"
  install -m 755 tests/kernels/init.sh "$root/sbin/init"
}

# The memory disk: what the kernel needs before it can read the real one.
build_early() {
  mkdir -p "$early"/{bin,dev,proc,sys,root}
  cp "$(command -v busybox)" "$early/bin/busybox"
  install -m 755 tests/kernels/init.sh "$early/init"
  : > "$early/modules.list"
  local module
  # The last is what ext4 asks for by another name.
  for module in virtio_pci virtio_blk ext4 crc32c_generic; do add_module "$work/deb" "$early" "$module"; done
  (cd "$early" && find . | busybox cpio -o -H newc 2>/dev/null) > "$work/initrd"
}

say "a machine with $release from $(basename "$deb")"
build_root
build_early
truncate -s 6G "$work/disk"
mkfs.ext4 -q -d "$root" "$work/disk"
rm -rf "$root"

# A busy host may emulate the timer too late for the kernel's check of it at boot.
kernel_options="console=ttyS0 quiet panic=-1 no_timer_check"
ended=0
timeout -k 10 "${SANDBAR_MACHINE_LIMIT:-45m}" qemu-system-x86_64 \
  -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 4096 -nodefaults -display none -no-reboot \
  -kernel "$work"/deb/boot/vmlinuz-* -initrd "$work/initrd" -append "$kernel_options" \
  -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" -device virtio-rng-pci \
  -serial "file:$work/console" -serial stdio </dev/null | sed -u 's,\r$,,' | tee "$work/report" || ended=$?
if ! tail -n 1 "$work/report" | grep -q '^done: [1-9][0-9]* ok, 0 failed$'; then
  say "the machine's console:"
  tail -n 40 "$work/console" | sed 's/^/  | /' >&2
  grep -q '^done: ' "$work/report" || say "the machine ended (code $ended; 124: by its limit) without having reported"
  exit 1
fi
