# on: nothing
# Debian 13 with what the SDK runs behind the user's back (GNU coreutils, findutils, bash, sudo, shadow) and what
# nearly every project needs to fetch and unpack things.
packages=sudo,ca-certificates,openssl,git,curl,xz-utils,bzip2,zstd,unzip,zip,procps,iproute2,iputils-ping,less
packages+=,libatomic1,libstdc++6,passwd,tzdata
mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --include="$packages" trixie "$LAYER"
# dpkg inside a disposable machine need not sync.
echo force-unsafe-io > "$LAYER/etc/dpkg/dpkg.cfg.d/unsafe-io"
rm -rf "$LAYER"/var/cache/apt/archives/*.deb "$LAYER"/var/log/*.log "$LAYER"/var/log/apt
mkdir -p "$LAYER/vercel" "$LAYER/shared"
# Plain files, so that a machine's own can be laid over them; the real ones come with every boot.
rm -f "$LAYER/etc/resolv.conf" "$LAYER/etc/hostname"
: > "$LAYER/etc/resolv.conf"
: > "$LAYER/etc/hostname"
