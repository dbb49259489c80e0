#!/usr/bin/env python3
"""clang-tidy over src/, remembered per file: a file is checked again only when it, a project header that it includes,
its compile flags, .clang-tidy or the set of headers to report on changed. Results live in
${SANDBAR_CACHE:-/var/cache/sandbar}/tidy.

usage: tools/tidy.py BUILD_DIR [-j N] [FILE…]     (BUILD_DIR has compile_commands.json)
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"
# Headers whose findings are not reported: async/ is the layer that makes the primitives that the checks are about.
QUIET = {"async"}


def header_filter():
    """Which headers findings are reported in: those of every module of cmake/modules.cmake but QUIET."""
    table = (ROOT / "cmake/modules.cmake").read_text()
    names = {m.split("/")[0] for m in re.findall(r"^sb_module\(([\w/]+)", table, re.M)}
    folders = {name for name in names if (ROOT / "src" / name).is_dir()} - QUIET
    assert {"base", "spawner", "api"} <= folders, "cmake/modules.cmake was not understood"
    return "/src/(" + "|".join(sorted(folders)) + r")/.*\.h$"


def closure(path, seen):
    """The project files that `path` includes, itself first."""
    if path in seen or not path.is_file():
        return
    seen[path] = path.read_bytes()
    for name in re.findall(rb'^\s*#\s*include\s+"([^"]+)"', seen[path], re.M):
        base = "tests" if name.startswith(b"support/") else "src"
        closure(ROOT / base / name.decode(), seen)


def key(entry, config):
    seen = {}
    closure(pathlib.Path(entry["file"]), seen)
    h = hashlib.sha256(config)
    # -o and the build directory do not matter to the verdict.
    flags = re.sub(r"-o \S+|\S*/build/\S+", "", entry["command"])
    flags = flags.replace(str(ROOT), "")  # a clone elsewhere has the same verdicts
    h.update(flags.encode())
    for path in sorted(seen):
        h.update(str(path.relative_to(ROOT)).encode() + b"\0" + seen[path])
    return h.hexdigest()


def check(build, entry, cache, digest, headers):
    if (cache / digest).exists():
        return entry["file"], "", True
    # Sanitizer and fortify flags only slow the front end down.
    extra = ["--extra-arg=-fno-sanitize=all", "--extra-arg=-U_FORTIFY_SOURCE", "--extra-arg=-Wno-unknown-warning-option"]
    r = subprocess.run([TIDY, "-p", str(build), "--quiet", "--warnings-as-errors=*", "--header-filter=" + headers,
                        *extra, entry["file"]], capture_output=True, text=True)
    if r.returncode == 0:
        (cache / digest).touch()
        return entry["file"], "", False
    return entry["file"], r.stdout + (r.stderr if not r.stdout else ""), False


def main():
    os.nice(10)  # `make test` runs it beside suites that wait for their servers
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*")
    args = parser.parse_intermixed_args()
    cache = pathlib.Path(os.environ.get("SANDBAR_CACHE", "/var/cache/sandbar")) / "tidy"
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True).stdout
    headers = header_filter()
    config = (ROOT / ".clang-tidy").read_bytes() + version.encode() + headers.encode()
    entries, seen = [], set()
    commands = json.loads((args.build / "compile_commands.json").read_text())
    for entry in commands:
        # A precompiled header fits the compiler's flags, not ours, and findings in what it holds would not be shown.
        entry["command"] = re.sub(r" -include-pch \S+ -Xclang -fno-pch-timestamp", "", entry["command"])
        path = pathlib.Path(entry["file"])
        # The guest's second compilation of a file says nothing new; tests are held to the compiler's warnings only.
        if not path.is_relative_to(ROOT / "src") or path in seen or path.name.endswith("_test.cc"):
            continue
        if args.files and not any(f in str(path) for f in args.files):
            continue
        seen.add(path)
        entries.append(entry)
    failed = reused = 0
    plain = args.build / "tidy"
    plain.mkdir(exist_ok=True)
    (plain / "compile_commands.json").write_text(json.dumps(commands))
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        jobs = [pool.submit(check, plain, e, cache, key(e, config), headers) for e in entries]
        for job in concurrent.futures.as_completed(jobs):
            name, problems, hit = job.result()
            reused += hit
            if problems:
                failed += 1
                print(problems, flush=True)
    print(f"clang-tidy: {len(entries)} files, {reused} unchanged, {failed} with findings")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
