# on: nothing
# The baseline build runs on every x86-64 CPU; the other one needs AVX2 and dies without it.
bin=$LAYER/vercel/runtimes/bun/bin
mkdir -p "$bin"
unpack_npm @oven/bun-linux-x64-baseline@1.4.4 "$WORK/bun"
install -m 0755 "$WORK/bun/bin/bun" "$bin/bun"
ln -s bun "$bin/bunx"
