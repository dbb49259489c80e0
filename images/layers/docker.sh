# on: base
# Docker inside a sandbox (docs/engines.md, "Containers inside"). Nothing starts it: `sudo dockerd &`.
apt_layer docker.io docker-cli iptables
mkdir -p "$LAYER/etc/docker" "$LAYER/var/lib/docker" "$LAYER/usr/local/bin"
cat > "$LAYER/etc/docker/daemon.json" <<'CONF'
{
  "storage-driver": "overlay2",
  "exec-opts": ["native.cgroupdriver=cgroupfs"],
  "runtimes": {"sandbar": {"path": "/usr/local/bin/sandbar-runc"}},
  "default-runtime": "sandbar"
}
CONF
cat > "$LAYER/usr/local/bin/sandbar-runc" <<'RUNC'
#!/bin/sh
# runc for containers of a sandbox: they trust what the sandbox trusts, its own authority too, with which the network
# policy opens TLS. dockerd has no setting for that, so it is put into what runc is told of a new container.
bundle=. before=
for word; do
  case $before in --bundle | -b) bundle=$word ;; esac
  before=$word
done
store=/etc/ssl/certs/ca-certificates.crt
case " $* " in
  *" create "* | *" run "*)
    grep -q "\"destination\":\"$store\"" "$bundle/config.json" ||
      sed -i "s#\"mounts\":\\[#&{\"destination\":\"$store\",\"type\":\"bind\",\"source\":\"$store\",\"options\":[\"rbind\",\"ro\",\"nodev\"]},#" "$bundle/config.json"
    for name in SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS; do
      grep -q "\"$name=" "$bundle/config.json" || sed -i "s#\"env\":\\[#&\"$name=$store\",#" "$bundle/config.json"
    done
    ;;
esac
exec runc "$@"
RUNC
chmod 0755 "$LAYER/usr/local/bin/sandbar-runc"
