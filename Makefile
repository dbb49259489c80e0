# The commands of the project. `make test` is what CI runs; see CONTRIBUTING.md for the rest.
.PHONY: build test test-all test-engines test-kernels test-upgrade bench format clean

build:
	@cmake --preset release && ninja -C build/release sandbar sandbar-spawner sandbar-scanner sandbar-guest

test:
	@tools/test.sh

test-all:
	@tools/test.sh --all

test-engines:
	@tools/test.sh --engines

# The namespaces engine on Debian 12's stock kernel, in an emulated machine.
test-kernels: build
	@tools/test_kernels.sh

# Machines of another revision's programs under the server of this build: make test-upgrade REV=<tag or commit>.
test-upgrade: build
	@tools/test_upgrade.sh $(REV)

bench: build
	@bench/run.sh

format:
	@tools/format.sh

clean:
	rm -rf build
