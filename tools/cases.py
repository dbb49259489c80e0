#!/usr/bin/env python3
"""The cases of a gtest program as tests of ctest, each by name, while one process runs them all.

usage: tools/cases.py list TEST PROGRAM DIR LABELS [FILTER]      writes DIR/cases.cmake, which ctest includes
       tools/cases.py run PROGRAM DIR [FILTER]                   runs the program once and writes down what came of each case

A process per case would cost the start of a sanitized program, and the host that many suites set up, two thousand times.
So the test TEST runs the whole program, and tools/case.sh only looks up what came of one case. A case that is run
without TEST (ctest -R 'Suite.Case') runs by itself.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

CASE = pathlib.Path(__file__).resolve().parent / "case.sh"


def file_of(case):
    return case.replace("/", "%")


def list_cases(test, program, directory, labels, pattern="*"):
    said = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True, check=True).stdout
    lines, suite, names = [], "", []
    for line in said.splitlines():
        name = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    for case in names:
        full = f"{test}.{case}"
        lines.append(f"add_test([==[{full}]==] {CASE} {directory} {program} {case})")
        lines.append(f"set_tests_properties([==[{full}]==] PROPERTIES LABELS \"{labels}\" DEPENDS {test} "
                     'SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]")')
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    (out / "cases.cmake").write_text("\n".join(lines) + "\n")


def run(program, directory, pattern="*"):
    out = pathlib.Path(directory)
    for name in ("passed", "failed", "skipped"):
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True)
    # Cases look here only in the same run of ctest, which is the parent of both.
    (out / "run").write_text(f"{os.getppid()}\n")
    report = out / "report.xml"
    report.unlink(missing_ok=True)
    code = subprocess.run([program, f"--gtest_filter={pattern}", f"--gtest_output=xml:{report}"]).returncode
    if not report.exists():
        print(f"{program} ended with {code} before it had run all cases")
        return 1
    for case in xml.parse(report).getroot().iter("testcase"):
        name = file_of(f"{case.get('classname')}.{case.get('name')}")
        failures, skips = case.findall("failure"), case.findall("skipped")
        if failures:
            (out / "failed" / name).write_text("\n".join(f.text or f.get("message") or "" for f in failures) + "\n")
        elif skips or case.get("result") == "skipped":
            (out / "skipped" / name).write_text("\n".join(s.text or s.get("message") or "" for s in skips) + "\n")
        else:
            (out / "passed" / name).touch()
    skipped = sorted(p.name for p in (out / "skipped").iterdir())
    if skipped:
        print(f"NOT TESTED: {len(skipped)} cases were skipped" + (" (the tests need root)" if os.geteuid() != 0 else ""))
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit({"list": list_cases, "run": run}[sys.argv[1]](*sys.argv[2:]))
