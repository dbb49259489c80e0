# on: base
apt_layer python3 python3-pip python3-venv python3-dev-
ln -sf python3 "$LAYER/usr/bin/python"
# pip may install into the machine: it is disposable, and that is what people type.
rm -f "$LAYER"/usr/lib/python3*/EXTERNALLY-MANAGED
