#!/usr/bin/env python3
"""Compares every #include in src/ with the module map in cmake/modules.cmake.

A folder may include itself and the folders after its `uses`; third-party headers are allowed only in the folders
named below, so that a heavy or dangerous library cannot leak. A folder uses only folders that stand above it in the
map, so there is no cycle, and every edge of the map has at least one #include. The check tests itself first.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Header prefix -> folders that may include it. Everything not listed is free (standard library, system calls).
THIRD_PARTY = {
    "CLI/": {"cli"},
    "toml++/": {"daemon"},
    "yaml-cpp/": {"llm", "evals"},
    "sqlite3.h": {"store"},
    "seccomp.h": {"os"},
    "sys/capability.h": {"os"},
    "nftables/": {"os"},
    "libmnl/": {"os"},
    "boost/beast": {"wire", "http", "egress"},
    "boost/asio": {"async", "http", "egress", "ingress", "engine", "engine/guest_link", "engine/spawner_client", "support/http", "support/egress", "support/engine", "support/guest_link", "support/sandbox", "support/api", "sandbox", "api", "client", "llm", "evals", "cli", "daemon", "mcp"},
    "boost/json": {"support/api", "wire", "http", "egress", "ingress", "images", "sandbox", "api", "client", "llm", "evals", "cli", "daemon", "store", "mcp"},
    "openssl/": {"crypto", "support/api", "support/http", "support/egress", "http", "egress", "sandbox"},
    "zlib.h": {"wire", "guest", "client", "mcp"},
    "zstd.h": {"cli"},
}
# The privileged process parses no guest or network bytes: these must never reach it.
SPAWNER_ONLY = {"spawner": {"base", "protocol", "os", "spawner"}}
SPAWNER_NEVER = {"protocol/guest_frames.h"}

# Folder -> what only its tests may include besides: filled by modules().
TEST_USES = {}


def modules(text):
    found = {}
    for call in re.finditer(r"^sb_module\(([^)]*)\)", text, re.M):
        words = call.group(1).split()
        uses, tests, mode = set(), set(), ""
        for word in words[1:]:
            if word in ("uses", "links", "tests"):
                mode = word
            elif mode == "uses":
                uses.add(word)
            elif mode == "tests":
                tests.add(word)
        found[words[0]] = uses
        TEST_USES[words[0]] = tests
    return found


def module_of(folder, table):
    """The module that a folder belongs to: itself, or the nearest one above it."""
    while folder and folder not in table:
        folder = folder.rpartition("/")[0]
    return folder


def check(path, folder, text, table):
    problems = []
    is_test = "test" in pathlib.Path(path).stem or folder.startswith("support/")
    for number, line in enumerate(text.splitlines(), 1):
        own = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if own:
            target = module_of(own.group(1).rpartition("/")[0], table)
            if target not in table:
                problems.append(f'{path}:{number}: "{own.group(1)}" names no module (write "folder/file.h")')
            elif target != folder and target not in table[folder] | (TEST_USES[folder] if is_test else set()):
                problems.append(f"{path}:{number}: {folder} may not include {target} (cmake/modules.cmake)")
            elif folder in SPAWNER_ONLY and not is_test and own.group(1) in SPAWNER_NEVER:
                problems.append(f"{path}:{number}: {folder} reads no bytes of guests: {own.group(1)}")
        other = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if other:
            for prefix, folders in THIRD_PARTY.items():
                if other.group(1).startswith(prefix) and folder not in folders:
                    problems.append(f"{path}:{number}: <{other.group(1)}> is not for {folder}")
    return problems


def includes(text, table):
    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)
    return {module_of(name.rpartition("/")[0], table) for name in names}


def check_table(table, used):
    """The map itself. `used`: folder -> the folders that its files include."""
    problems = []
    above = set()
    for folder, uses in table.items():
        tests = {target for target in TEST_USES[folder] if not target.startswith("support/")}
        for target in sorted((uses | tests) - above):
            problems.append(f"cmake/modules.cmake: {folder} uses {target}, which is not above it")
        above.add(folder)
        for target in sorted((uses | TEST_USES[folder]) - used.get(folder, set())):
            problems.append(f"cmake/modules.cmake: {folder} uses {target}, but no file of it includes it")
    return problems


def run():
    table = modules((ROOT / "cmake/modules.cmake").read_text())
    problems = []
    for folder, allowed in SPAWNER_ONLY.items():
        for extra in table[folder] - allowed:
            problems.append(f"cmake/modules.cmake: {folder} must not use {extra}")
    used = {}
    for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "tests/support").rglob("*")]):
        if path.suffix not in (".h", ".cc"):
            continue
        base = ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT / "tests"
        folder = module_of(str(path.parent.relative_to(base)), table)
        if folder not in table:
            problems.append(f"{path.relative_to(ROOT)}: its folder is not in cmake/modules.cmake")
            continue
        problems += check(path.relative_to(ROOT), folder, path.read_text(), table)
        used.setdefault(folder, set()).update(includes(path.read_text(), table))
    return problems + check_table(table, used)


def self_test():
    table = modules("sb_module(base)\nsb_module(api uses base links X)\n")
    assert table == {"base": set(), "api": {"base"}}
    assert not check("x", "api", '#include "base/a.h"\n#include <string>\n', table)
    assert check("x", "base", '#include "api/a.h"\n', table)
    assert check("x", "base", "#include <sqlite3.h>\n", table)
    assert check("x", "base", '#include "a.h"\n', table)
    assert not check("x", "api", '#include "api/v1/a.h"\n', table)
    table = modules("sb_module(protocol)\nsb_module(spawner uses protocol)\n")
    assert check("x.cc", "spawner", '#include "protocol/guest_frames.h"\n', table)
    assert not check("x.cc", "spawner", '#include "protocol/vm_config.h"\n', table)
    table = modules("sb_module(base)\nsb_module(api tests base)\n")
    assert check("x.cc", "api", '#include "base/a.h"\n', table)
    assert not check("x_test.cc", "api", '#include "base/a.h"\n', table)
    assert not check_table(table, {"api": {"base"}})
    assert check_table(table, {"api": set()})
    assert check_table(modules("sb_module(a uses b)\nsb_module(b uses a)\n"), {"a": {"b"}, "b": {"a"}})


if __name__ == "__main__":
    self_test()
    found = run()
    print("\n".join(found) or "includes: ok")
    sys.exit(1 if found else 0)
