# Everything besides the unit tests that `ctest` runs: source checks, fuzz smoke runs, black-box suites on the real
# programs. Included by the top CMakeLists.txt when tests are on.

function(sb_check name)
  add_test(NAME check.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(check.${name} PROPERTIES LABELS check)
endfunction()

sb_check(format tools/format.sh --check)
sb_check(includes ${Python3_EXECUTABLE} tools/check_includes.py)
sb_check(await ${Python3_EXECUTABLE} tools/check_await.py)
sb_check(lint ${Python3_EXECUTABLE} tools/lint.py)
sb_check(tidy ${Python3_EXECUTABLE} tools/tidy.py ${CMAKE_BINARY_DIR})
set_tests_properties(check.tidy PROPERTIES TIMEOUT 3600 COST 2000)  # from the start: minutes when nothing is cached

# Attacks by a program inside machines of a real spawner.
include(${CMAKE_SOURCE_DIR}/tests/security/CMakeLists.txt OPTIONAL)

# What the spawner promises of every machine, on gVisor. Left out is what only class 1 says in these words.
if(TARGET spawner_test)
  add_test(NAME gvisor.spawner COMMAND spawner_test
    --gtest_filter=SuperviseTest.*:Disks/SnapshotTest.*/0:Disks/ChainTest.*:ScanTest.*-SuperviseTest.AnAgentThatCannotRun*)
  set_tests_properties(gvisor.spawner PROPERTIES LABELS "unit;engines" TIMEOUT 1800
    ENVIRONMENT SANDBAR_TEST_ISOLATION=gvisor)
endif()

# Black-box suites: each *.test.mjs is one entry, run against the programs of this build. Each starts servers of its own
# (ports, data directories, cgroups are theirs), so they run side by side: most of their time is waiting.
find_program(NODE node)
if(NODE)
  # Those that measure the host as a whole run alone.
  set(alone
    security.limits          # fills the memory of twenty machines, reads the host's count of socket buffers
    security.neighbours      # compares how long creates take
    engines.nesting          # floods tables that all machines of the host share, compares every setting of its network
    # Emulated machines: each takes a processor for seconds, and a server waits for an agent only so long.
    engines.microvm engines.memory engines.formats engines.hostile clients.isolation faults.upgrade)
  # Those that share something are not run at the same time.
  set(lock_embedded cli.cli cli.launcher cli.readme llm.agent)      # servers in /var/lib/sandbar-run, which cli.cli counts
  set(lock_flood network.root security.floods network.attacks)      # floods: each is compared with a quiet time before it
  set(lock_browser previews.attack previews.forward previews.vite)  # a Chromium each
  file(GLOB suites CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} tests/*/*.test.mjs sdk/*.test.mjs)
  set(blackbox)
  foreach(suite ${suites})
    string(REGEX REPLACE "^(tests/)?(.*)\\.test\\.mjs$" "\\2" name ${suite})
    string(REPLACE "/" "." name ${name})
    add_test(NAME ${name} COMMAND ${NODE} --test ${CMAKE_SOURCE_DIR}/${suite})
    set_tests_properties(${name} PROPERTIES LABELS blackbox TIMEOUT 1800 ENVIRONMENT "SANDBAR_BIN=${CMAKE_BINARY_DIR}/bin/sandbar")
    list(APPEND blackbox ${name})
  endforeach()
  # A part of them on the other engines, where those can be used; all of them: make test-engines.
  set(suites_of_gvisor clients/forks clients/lifecycle clients/network clients/files clients/file_calls clients/fs clients/users clients/streams clients/terminal)
  set(suites_of_microvm-emulated clients/lifecycle clients/network clients/terminal)  # forks: 20 machines at once take it minutes
  foreach(engine gvisor microvm-emulated)
    foreach(suite ${suites_of_${engine}})
      string(REPLACE "/" "." name ${engine}.${suite})
      add_test(NAME ${name} COMMAND ${NODE} ${CMAKE_SOURCE_DIR}/tools/test_engines.mjs --if-usable --engine ${engine} ${suite})
      set_tests_properties(${name} PROPERTIES LABELS "blackbox;engines" TIMEOUT 1800
        SKIP_RETURN_CODE 77 ENVIRONMENT "SANDBAR_BIN=${CMAKE_BINARY_DIR}/bin/sandbar")
      list(APPEND blackbox ${name})
      if(engine STREQUAL "microvm-emulated")
        list(APPEND alone ${name})
      endif()
    endforeach()
  endforeach()
  foreach(name ${alone})
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endforeach()
  foreach(lock embedded flood browser)
    set_tests_properties(${lock_${lock}} PROPERTIES RESOURCE_LOCK ${lock})
  endforeach()
endif()

# fuzz/<name>.cc with seeds in fuzz/corpus/<name>/: replayed and run for a moment (programs come from tools/fuzz.sh).
file(GLOB targets CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/fuzz fuzz/*.cc)
foreach(target ${targets})
  get_filename_component(name ${target} NAME_WE)
  if(SB_FUZZ)
    add_executable(fuzz_${name} fuzz/${target})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    # The folders that it includes are the libraries that it needs.
    file(STRINGS fuzz/${target} lines REGEX "^#include \"")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"(.*)/[^/]*\"$" "\\1" folder ${line})
      string(REPLACE "/" "_" folder ${folder})
      while(NOT TARGET sb_${folder} AND folder MATCHES "_")  # a folder inside of a library's
        string(REGEX REPLACE "_[^_]*$" "" folder ${folder})
      endwhile()
      target_link_libraries(fuzz_${name} PRIVATE sb_${folder})
    endforeach()
    list(APPEND fuzzers fuzz_${name})
  else()
    add_test(NAME fuzz.${name} COMMAND ${CMAKE_SOURCE_DIR}/tools/fuzz.sh one ${name} 5)
    set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz)
  endif()
endforeach()
if(fuzzers)
  add_custom_target(fuzzers DEPENDS ${fuzzers})
endif()
