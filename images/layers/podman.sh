# on: base
# Containers inside a sandbox (docs/engines.md, "Containers inside"). Everything runs as the sandbox's root, in namespaces
# of the sandbox's own, below its limits and behind its network policy.
apt_layer podman crun netavark aardvark-dns nftables
mkdir -p "$LAYER/etc/containers/containers.conf.d" "$LAYER/var/lib/containers"
cat > "$LAYER/etc/containers/storage.conf" <<'CONF'
[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
CONF
# What a container needs to trust the sandbox's own authority, with which the network policy opens TLS: the sandbox's
# bundle in place of the image's, and its name for programs that look elsewhere.
cat > "$LAYER/etc/containers/containers.conf.d/sandbar.conf" <<'CONF'
[containers]
volumes = ["/etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro"]
env = [
  "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
  "CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
  "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
  "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
]
default_sysctls = []
log_driver = "k8s-file"

[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"

[network]
firewall_driver = "nftables"
CONF
