# The module map: one library per folder of src/, with the folders it may include. Arrows point down only.
# tools/check_includes.py reads this table and fails the build's checks when an #include disagrees with it.
#
# sb_module(<folder> [single_threaded] [uses <folder>…] [tests <folder only its tests use>…] [links <library>…])
# A folder named support/… is in tests/ and only for tests; a test may use it wherever it stands in this table.
# single_threaded: its tests are left out of the thread sanitizer's build, where every child that they fork has a second
# thread, the sanitizer's, and may enter no user namespace.
sb_module(base links fmt::fmt)
sb_module(crypto uses base links OpenSSL::Crypto)
sb_module(assets)
sb_embed(assets assets.h kLlmsTxt sdk/llms.txt kOpenApiJson sdk/openapi.json kSandbarPy sdk/python/sandbar.py)
sb_module(async uses base links Boost::headers Threads::Threads)
sb_module(wire uses base crypto tests support/wire links Boost::json ZLIB::ZLIB)
sb_module(protocol uses base)
sb_module(os single_threaded uses base protocol tests support/os links PkgConfig::SECCOMP PkgConfig::CAP PkgConfig::NFTABLES PkgConfig::MNL)
sb_module(layer_scanner single_threaded uses base crypto os links fmt::fmt)
sb_module(spawner single_threaded uses base protocol os tests support/spawner)
sb_module(guest single_threaded uses base wire protocol os tests support/guest support/wire links ZLIB::ZLIB)
sb_module(http uses base async wire tests support/http links OpenSSL::SSL OpenSSL::Crypto)
sb_module(egress uses base crypto async wire http tests support/egress links Boost::json OpenSSL::SSL OpenSSL::Crypto PkgConfig::RE2 PkgConfig::IDN2)
sb_module(ingress uses base async wire http tests support/http)
sb_module(images uses base links Boost::json)
sb_module(store uses base async tests support/store links Boost::json PkgConfig::SQLITE)
sb_module(engine uses base async)
sb_module(engine/guest_link uses base async protocol engine tests wire support/guest_link support/wire)
sb_module(engine/spawner_client uses base async protocol os engine tests spawner engine/guest_link)
sb_module(sandbox uses base crypto async wire protocol engine engine/guest_link store images http egress tests support/sandbox support/store links Boost::json OpenSSL::Crypto)
sb_embed(sandbox code/code_drivers.h kPythonDriver src/sandbox/code/drivers/driver.py kNodeDriver src/sandbox/code/drivers/driver.js
  kBashDriver src/sandbox/code/drivers/driver.sh)
sb_module(mcp uses base async wire egress sandbox links Boost::json ZLIB::ZLIB)
sb_module(api uses base crypto assets async wire http egress ingress sandbox store images mcp tests support/api links Boost::json)
sb_module(client uses base async wire http links Boost::json ZLIB::ZLIB)
sb_module(llm uses base async wire http client links Boost::json PkgConfig::RE2 yaml-cpp)
sb_module(evals uses base wire client llm links Boost::json PkgConfig::RE2 yaml-cpp)
sb_module(cli uses base crypto assets async wire http client llm evals links Boost::json PkgConfig::ZSTD)
sb_module(daemon uses base wire protocol os egress images engine/spawner_client sandbox mcp api cli links Boost::json tomlplusplus::tomlplusplus)

# Fakes, fixtures and harnesses of the unit tests: tests/support/<folder>, included as "support/<folder>/file.h".
sb_module(support/wire)
sb_module(support/store uses base store)
sb_module(support/os uses base os)
sb_module(support/spawner single_threaded uses base os spawner)
sb_module(support/guest uses base protocol guest)
sb_module(support/http uses async wire http)
sb_module(support/egress uses base wire egress support/http support/wire)
sb_module(support/engine uses async protocol engine tests engine/guest_link)
sb_module(support/guest_link uses base async protocol engine/guest_link)
sb_module(support/sandbox uses sandbox support/engine)
sb_module(support/api uses base crypto wire http sandbox api)
