#!/usr/bin/env bash
# Builds images: layers as erofs files named by their content, manifests that list them (src/images/images.h).
#
#   images/build.sh RECIPE…          builds what is missing (recipes: see images/catalog.txt)
#   images/build.sh --check RECIPE…  exit 0 when all are up to date, 1 otherwise; does nothing
#   images/build.sh --list           recipe, image name, built or not
#
# Root only. Store: $SANDBAR_IMAGES (default /var/cache/sandbar/images). A layer is rebuilt when its recipe, the
# helpers or a layer below it changed. Safe to run several times at once: each layer is built under its own lock.
# A persona layer (the account, its login shells) belongs to one recipe and is named persona-X@RECIPE.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
STORE=${SANDBAR_IMAGES:-/var/cache/sandbar/images}
started=$SECONDS

say() { printf '[image %4ds] %s\n' $((SECONDS - started)) "$*" >&2; }
die() { printf 'images/build.sh: %s\n' "$*" >&2; exit 1; }

row() { awk -F'|' -v OFS='|' -v r="$1" '!/^#/ {gsub(/^ +| +$/, "", $1); if ($1 == r) print}' "$HERE/catalog.txt"; }
col() { row "$1" | awk -F'|' -v n="$2" '{gsub(/^ +| +$/, "", $n); print $n}'; }
recipes() { awk -F'|' '!/^#/ && NF > 3 {gsub(/ /, "", $1); print $1}' "$HERE/catalog.txt"; }
below() { sed -n 's/^# on: *//p;q' "$HERE/layers/${1%@*}.sh" | sed 's/^nothing$//'; }

# The PATH of a recipe's images.
recipe_path() {
  local dirs path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  dirs=$(col "$1" 5)
  [ "$dirs" = - ] || path=$dirs:$path
  printf '/vercel/bin:%s' "$path"
}

# What a layer is made from, as a hash: its recipe, the helpers, the pins it names, the layers under it.
layer_key() {
  local layer=$1 file=$HERE/layers/${1%@*}.sh b
  {
    cat "$file" "$HERE/lib.sh"
    case $layer in *@*) cat "$HERE/persona.sh"; recipe_path "${layer#*@}" ;; esac
    grep -oE '[@a-z0-9/_-]+@[0-9][0-9.]*' "$file" | while read -r pin; do
      grep -F "$pin " "$HERE/pins.txt" || true
    done
    for b in $(below "$layer"); do layer_key "$b"; done
  } | sha256sum | cut -c1-64
}

layer_id() { cat "$STORE/keys/$(layer_key "$1")" 2>/dev/null || true; }
layer_built() { local id; id=$(layer_id "$1"); [ -n "$id" ] && [ -f "$STORE/layers/$id.erofs" ]; }

# build_layer_inside LAYER OUT: runs in a private mount namespace made by build_layer.
build_layer_inside() {
  local layer=$1 out=$2 b id lowers=
  WORK=$(mktemp -d "$STORE/tmp/$layer.XXXXXX")
  # dpkg syncs after every file; on a disk that makes minutes of seconds.
  if [ "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" -gt 6000000 ]; then mount -t tmpfs -o mode=0700 tmpfs "$WORK"; fi
  LAYER=$WORK/layer
  mkdir -p "$LAYER"
  for b in $(below "$layer"); do
    id=$(layer_id "$b")
    mkdir -p "$WORK/lower-$b"
    mount -t erofs -o ro "$STORE/layers/$id.erofs" "$WORK/lower-$b"
    lowers=${lowers:+$lowers:}$WORK/lower-$b
  done
  BELOW=$lowers
  # shellcheck disable=SC1090
  . "$HERE/lib.sh"
  case $layer in
    *@*)
      # shellcheck disable=SC2034
      IMAGE_PATH=$(recipe_path "${layer#*@}")
      # shellcheck disable=SC1091
      . "$HERE/persona.sh"
      ;;
  esac
  # shellcheck disable=SC1090
  . "$HERE/layers/${layer%@*}.sh"
  chmod 0755 "$LAYER"
  mkfs.erofs -zlz4 -C65536 -U00000000-0000-0000-0000-000000000000 --quiet "$out" "$LAYER" >/dev/null
}

build_layer() {
  local layer=$1 b key id out
  layer_built "$layer" && return 0
  for b in $(below "$layer"); do build_layer "$b"; done
  exec 9> "$STORE/locks/$layer"
  flock 9
  if ! layer_built "$layer"; then
    say "building layer $layer"
    key=$(layer_key "$layer")
    out=$STORE/tmp/$layer.$$.erofs
    if ! unshare --mount --propagation private bash "$HERE/build.sh" --inside "$layer" "$out" 9>&- \
        > "$STORE/tmp/$layer.log" 2>&1 </dev/null; then
      tail -n 15 "$STORE/tmp/$layer.log" >&2
      die "layer $layer failed; the whole log is $STORE/tmp/$layer.log"
    fi
    id=$(sha256sum "$out" | cut -c1-64)
    chmod 0400 "$out"
    mv "$out" "$STORE/layers/$id.erofs"
    printf '%s\n' "$id" > "$STORE/keys/$key.new" && mv "$STORE/keys/$key.new" "$STORE/keys/$key"
    rm -rf "$STORE/tmp/$layer".??????
    say "layer $layer ready ($(du -h "$STORE/layers/$id.erofs" | cut -f1))"
  fi
  exec 9>&-
}

# manifest FILE NAME RUNTIME USER HOME CWD PATH LAYER…
manifest() {
  local file=$1 name=$2 runtime=$3 user=$4 home=$5 cwd=$6 path=$7 ids= id l
  shift 7
  for l in "$@"; do id=$(layer_id "$l"); ids=${ids:+$ids,}\"$id\"; done
  local body digest
  body="\"name\":\"$name\",\"runtime\":\"$runtime\",\"layers\":[$ids],\"user\":\"$user\",\"uid\":1000,\"gid\":1000"
  body="$body,\"home\":\"$home\",\"cwd\":\"$cwd\",\"env\":{\"PATH\":\"$path\",\"LANG\":\"C.UTF-8\"}"
  digest=sha256:$(printf '%s' "$body" | sha256sum | cut -c1-64)
  printf '{%s,"digest":"%s"}\n' "$body" "$digest" > "$STORE/manifests/$file.json.new.$$"
  chmod 0644 "$STORE/manifests/$file.json.new.$$"
  mv "$STORE/manifests/$file.json.new.$$" "$STORE/manifests/$file.json"
}

recipe_layers() { col "$1" 4; }
recipe_built() {
  local recipe=$1
  manifest_built "$recipe.json" "persona-ubuntu@$recipe" $(recipe_layers "$recipe") || return 1
  [ "$(col "$recipe" 3)" = - ] ||
    manifest_built "runtime-$recipe.json" "persona-runtime@$recipe" $(recipe_layers "$recipe")
}

# manifest_built FILE LAYER…: it is there and names these layers, which are built.
manifest_built() {
  local file=$STORE/manifests/$1 l
  shift
  [ -f "$file" ] || return 1
  for l in "$@"; do
    layer_built "$l" || return 1
    grep -qF "$(layer_id "$l")" "$file" || return 1
  done
}

build_recipe() {
  local recipe=$1 l runtime path layers
  [ -n "$(row "$recipe")" ] || die "no recipe '$recipe' (there are: $(recipes | paste -sd' '))"
  if recipe_built "$recipe"; then say "$recipe is up to date"; return 0; fi
  layers=$(recipe_layers "$recipe") runtime=$(col "$recipe" 3) path=$(recipe_path "$recipe")
  for l in $layers "persona-ubuntu@$recipe"; do build_layer "$l"; done
  # shellcheck disable=SC2086
  manifest "$recipe" "$(col "$recipe" 2)" "${runtime/#-/}" ubuntu /vercel /vercel "$path" "persona-ubuntu@$recipe" $layers
  if [ "$runtime" != - ]; then
    build_layer "persona-runtime@$recipe"
    # shellcheck disable=SC2086
    manifest "runtime-$recipe" "sandbar/runtime/$runtime:latest" "$runtime" vercel-sandbox /home/vercel-sandbox \
      /vercel/sandbox "$path" "persona-runtime@$recipe" $layers
  fi
  say "$recipe ready: $(col "$recipe" 2)"
}

case ${1:-} in
  --inside) build_layer_inside "$2" "$3"; exit ;;
  --check) shift; for r in "$@"; do recipe_built "$r" || exit 1; done; exit 0 ;;
  --list)
    for r in $(recipes); do
      if recipe_built "$r"; then state=built; else state=missing; fi
      printf '%s\t%s\t%s\n' "$r" "$(col "$r" 2)" "$state"
    done
    exit 0 ;;
  ''|-*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || die "must run as root (sudo images/build.sh $*)"
for tool in mmdebstrap mkfs.erofs npm openssl unshare; do
  command -v "$tool" >/dev/null || die "$tool is missing; ./sandbar installs it, or: apt-get install mmdebstrap erofs-utils npm openssl"
done
mkdir -p "$STORE"/{layers,keys,manifests,locks,tmp}
chmod 0755 "$STORE" "$STORE/manifests"
chmod 0700 "$STORE/layers" "$STORE/tmp"
for r in "$@"; do build_recipe "$r"; done
