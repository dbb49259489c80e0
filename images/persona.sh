# Helpers of the persona layers (images/layers/persona-*.sh): what the user of an image finds besides the account. They
# are no part of lib.sh, so that a change here rebuilds the small persona layers only. Besides lib.sh's variables:
#   IMAGE_PATH  the PATH of the image, as its manifest says

# login_shells: login shells (`bash -lc`, `sh -lc`, `sudo -i`, `su -`) find what other commands find. Debian's
# /etc/profile sets PATH anew, and the runtimes of the image would be lost; the rest of that file stays.
login_shells() {
  grep -q '^export PATH$' "$BELOW/etc/profile" || die "/etc/profile of the base layer does not set PATH as expected"
  mkdir -p "$LAYER/etc"
  {
    echo '# /etc/profile: read by login shells (sh, bash). PATH is set by Sandbar, the rest is Debian'"'s."
    echo
    printf "sandbar_path='%s'\n" "$IMAGE_PATH"
    cat <<'PROFILE'
# A PATH with the standard directories only is one that nobody chose: it becomes the image's. A chosen one keeps its
# order, and the directories of the image that it lacks come after it.
sandbar_chosen=
sandbar_rest=${PATH-}:
while [ -n "$sandbar_rest" ]; do
  case ${sandbar_rest%%:*} in
    '' | . | /bin | /sbin | /usr/bin | /usr/sbin | /usr/local/bin | /usr/local/sbin | /usr/games | /usr/local/games) ;;
    *) sandbar_chosen=1 ;;
  esac
  sandbar_rest=${sandbar_rest#*:}
done
if [ -n "$sandbar_chosen" ]; then
  sandbar_rest=$sandbar_path:
  while [ -n "$sandbar_rest" ]; do
    case ":$PATH:" in
      *":${sandbar_rest%%:*}:"*) ;;
      *) PATH=$PATH:${sandbar_rest%%:*} ;;
    esac
    sandbar_rest=${sandbar_rest#*:}
  done
else
  PATH=$sandbar_path
fi
unset sandbar_path sandbar_chosen sandbar_rest
PROFILE
    sed -n '/^export PATH$/,$p' "$BELOW/etc/profile"
  } > "$LAYER/etc/profile"
}

# no_dnf: the hosted service's runtimes stand on another distribution, whose package manager people call.
no_dnf() {
  mkdir -p "$LAYER/usr/local/bin"
  cat > "$LAYER/usr/local/bin/dnf" <<'DNF'
#!/bin/sh
# This image is Debian. Should somebody install the real dnf, it is used.
[ ! -x /usr/bin/dnf ] || exec /usr/bin/dnf "$@"
echo 'dnf is not here: this sandbox runs Debian. Use apt-get: sudo apt-get update && sudo apt-get install -y PACKAGE' >&2
echo 'Package names may differ: apt-cache search WORD finds them.' >&2
exit 1
DNF
  chmod 0755 "$LAYER/usr/local/bin/dnf"
}
