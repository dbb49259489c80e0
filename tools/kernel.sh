#!/bin/sh
# The guest kernel of microVMs, made once and kept outside the checkout ($SANDBAR_CACHE/kernel, or next to
# $SANDBAR_IMAGES; or $SANDBAR_KERNEL), where the server looks for it. As root; `sandbar kernel` runs it.
#   tools/kernel.sh cloud [FILE.deb]   Debian's cloud kernel with the modules it needs: nothing is built
#   tools/kernel.sh build              a minimal one from Debian's linux-source-6.1 (minutes; starts faster)
#   tools/kernel.sh use FILE           any other with what kernel/microvm.config lists built in
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tools/kernel_parts.sh"
cache=${SANDBAR_CACHE:-/var/cache/sandbar}
[ -z "${SANDBAR_IMAGES:-}" ] || cache=$(dirname "$SANDBAR_IMAGES")
target=${SANDBAR_KERNEL:-$cache/kernel}
[ -z "${SANDBAR_KERNEL:-}" ] || cache=$(dirname "$SANDBAR_KERNEL")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "kernel: $*" >&2; }

# Replaces what is there in one step.
publish() {
  mkdir -p "$cache"
  chmod -R go-w "$1"
  rm -rf "$target.old"
  [ ! -e "$target" ] || mv "$target" "$target.old"
  mv "$1" "$target"
  rm -rf "$target.old"
  say "$target: $(cat "$target/about")"
}

cloud() {
  deb=${1:-}
  [ -n "$deb" ] || deb=$(debian_kernel "$cache")
  dpkg-deb -x "$deb" "$work/deb"
  mkdir -p "$work/out/modules"
  : > "$work/out/modules.list"
  cp "$work"/deb/boot/vmlinuz-* "$work/out/kernel"
  for module in virtio_mmio virtio_console virtio_blk virtio_net virtio_rng erofs overlay; do
    add_module "$work/deb" "$work/out" "$module"
  done
  # Loaded only in machines that run containers. The list's existence says that the kernel has what they need.
  : > "$work/out/containers.list"
  for module in veth bridge br_netfilter nf_tables nf_conntrack nf_conntrack_netlink nf_nat nft_chain_nat nft_ct nft_nat nft_masq nft_fib \
    nft_fib_inet nft_fib_ipv4 nft_fib_ipv6 nft_compat nft_reject nft_reject_inet xt_addrtype xt_conntrack xt_MASQUERADE xt_comment xt_mark; do
    add_module "$work/deb" "$work/out" "$module" containers.list
  done
  echo "Debian's $(dpkg-deb -f "$deb" Package) $(dpkg-deb -f "$deb" Version)" > "$work/out/about"
  publish "$work/out"
}

build() {
  for tool in flex bison bc make gcc; do
    command -v $tool > /dev/null || { say "$tool is missing: apt-get install linux-source-6.1 build-essential flex bison bc libelf-dev"; exit 1; }
  done
  source=/usr/src/linux-source-6.1.tar.xz
  [ -e "$source" ] || { say "no $source: apt-get install linux-source-6.1"; exit 1; }
  key=$(cat "$here/kernel/microvm.config" "$source" | sha256sum | cut -c 1-16)
  if [ ! -e "$cache/kernel-$key" ]; then
    say "building; this takes some minutes"
    mkdir "$work/source"
    tar -xf "$source" -C "$work/source" --strip-components=1
    cp "$here/kernel/microvm.config" "$work/source/kernel/configs/sandbar.config"
    make -s -C "$work/source" tinyconfig sandbar.config > "$work/log" 2>&1
    { make -C "$work/source" -j"$(nproc)" vmlinux 2>&1 || : > "$work/failed"; } | tee -a "$work/log" |
      awk '/^ *(CC|AS) /{ if (++n % 100 == 0) { print "kernel: " n " files compiled"; fflush() } }' >&2
    [ ! -e "$work/failed" ] || { tail -n 20 "$work/log" >&2; exit 1; }
    strip -o "$work/vmlinux" "$work/source/vmlinux"
    mkdir -p "$cache"
    mv "$work/vmlinux" "$cache/kernel-$key"
  fi
  mkdir -p "$work/out"
  cp "$cache/kernel-$key" "$work/out/kernel"
  : > "$work/out/containers.list"
  echo "built from linux-source-6.1, $key" > "$work/out/about"
  publish "$work/out"
}

case ${1:-} in
  cloud) cloud "${2:-}" ;;
  build) build ;;
  use)
    mkdir -p "$work/out"
    cp "$2" "$work/out/kernel"
    : > "$work/out/containers.list"
    echo "$2" > "$work/out/about"
    publish "$work/out"
    ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
