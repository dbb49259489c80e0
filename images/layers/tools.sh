# on: python base
apt_layer build-essential pkg-config python3-dev jq ripgrep tree file wget rsync sqlite3 nano vim-tiny patch bc
