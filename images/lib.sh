# Helpers for layer recipes (images/layers/*.sh). They run in a private mount namespace, as root, with
#   LAYER  the tree to fill            WORK  scratch space
#   BELOW  the mounted layers this one stands on, topmost first, joined by ':' as overlay's lowerdir wants them

# unpack_npm PACKAGE@VERSION DIR: fetches the pinned tarball and unpacks its contents into DIR.
unpack_npm() {
  local spec=$1 dir=$2 want got file
  want=$(awk -v s="$spec" '$1 == s {print $2}' "$HERE/pins.txt")
  [ -n "$want" ] || die "$spec has no line in images/pins.txt"
  mkdir -p "$WORK/pack" "$dir"
  file=$WORK/pack/$(cd "$WORK/pack" && npm pack --silent "$spec" </dev/null | tail -n 1)
  got=sha512-$(openssl dgst -sha512 -binary "$file" | base64 -w0)
  [ "$got" = "$want" ] || die "$spec: content does not match its pin (got $got)"
  tar -xzf "$file" -C "$dir" --strip-components=1 --no-same-owner
  rm -f "$file"
}

# install_node NAME NODE NPM PNPM: a Node.js with npm, npx and pnpm under /vercel/runtimes/NAME.
install_node() {
  local root=$LAYER/vercel/runtimes/$1
  mkdir -p "$root/bin" "$root/lib/node_modules"
  unpack_npm "$2" "$WORK/node"
  install -m 0755 "$WORK/node/bin/node" "$root/bin/node"
  # Headers for native add-ons, without the OpenSSL configurations of other platforms (60 MB).
  if [ -d "$WORK/node/include" ]; then
    cp -a "$WORK/node/include" "$root/include"
    find "$root/include" -path '*/openssl/archs/*' -maxdepth 6 -mindepth 1 -type d ! -path '*linux-x86_64*' -prune -exec rm -rf {} +
  fi
  unpack_npm "$3" "$root/lib/node_modules/npm"
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/bin/npx"
  # A denied or dead network should fail in seconds; npm's own back-off makes it more than a minute.
  printf 'fetch-retry-mintimeout=500\nfetch-retry-maxtimeout=2000\nupdate-notifier=false\nfund=false\n' >> "$root/lib/node_modules/npm/npmrc"
  unpack_npm "$4" "$root/lib/node_modules/pnpm"
  ln -s ../lib/node_modules/pnpm/bin/pnpm.cjs "$root/bin/pnpm"
  ln -s ../lib/node_modules/pnpm/bin/pnpx.cjs "$root/bin/pnpx"
  chmod -R go-w "$root"
  chmod 0755 "$root"/lib/node_modules/npm/bin/*.js "$root"/lib/node_modules/pnpm/bin/*.cjs
  chown -R 0:0 "$root"
}

# apt_layer PACKAGE…: installs Debian packages over BELOW; what changed becomes the layer.
apt_layer() {
  local merged=$WORK/merged
  mkdir -p "$merged" "$WORK/ovl"
  mount -t overlay overlay -o "lowerdir=$BELOW,upperdir=$LAYER,workdir=$WORK/ovl" "$merged"
  mount -t proc proc "$merged/proc"
  mount --bind /dev "$merged/dev"
  cp -L /etc/resolv.conf "$merged/etc/resolv.conf"
  local env=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8)
  "${env[@]}" chroot "$merged" apt-get -q -o Acquire::Languages=none update
  "${env[@]}" chroot "$merged" apt-get -q install -y --no-install-recommends "$@"
  "${env[@]}" chroot "$merged" apt-get clean
  umount "$merged/dev" "$merged/proc"
  umount "$merged"
  rm -rf "$LAYER"/var/lib/apt/lists "$LAYER"/var/log "$LAYER"/var/cache/apt "$LAYER"/var/cache/debconf/*-old
  rm -f "$LAYER/etc/resolv.conf"
  rm -rf "$LAYER/tmp" "$LAYER/run" "$LAYER/dev" "$LAYER/proc"
  find "$LAYER" -name __pycache__ -type d -prune -exec rm -rf {} +
}

# make_user NAME HOME CWD: uid and gid 1000, passwordless sudo that keeps the caller's environment.
make_user() {
  local name=$1 home=$2 cwd=$3 f
  mkdir -p "$LAYER/etc/sudoers.d"
  for f in passwd group shadow gshadow; do cp -a "$BELOW/etc/$f" "$LAYER/etc/$f"; done
  echo "$name:x:1000:1000:$name:$home:/bin/bash" >> "$LAYER/etc/passwd"
  echo "$name:x:1000:" >> "$LAYER/etc/group"
  echo "$name:!:19000:0:99999:7:::" >> "$LAYER/etc/shadow"
  echo "$name:!::" >> "$LAYER/etc/gshadow"
  cat > "$LAYER/etc/sudoers.d/sandbar" <<SUDO
Defaults !env_reset, always_set_home, !fqdn, !secure_path, !requiretty
$name ALL=(ALL:ALL) NOPASSWD: ALL
SUDO
  chmod 0440 "$LAYER/etc/sudoers.d/sandbar"
  # The topmost layer that has a directory decides its owner, so these come with every persona.
  mkdir -p "$LAYER/vercel/bin" "$LAYER/home" "$LAYER$home" "$LAYER$cwd"
  cp "$BELOW/etc/skel/.bashrc" "$BELOW/etc/skel/.profile" "$LAYER$home/"
  chown 1000:1000 "$LAYER/vercel" "$LAYER/vercel/bin"
  chown -R 1000:1000 "$LAYER$home" "$LAYER$cwd"
}
