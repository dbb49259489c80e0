#!/usr/bin/env python3
"""Small rules that no compiler checks. Reads the files that git would ship, else the tree.

- no absolute paths of somebody's machine, no mirror or registry hosts: tools use their configured defaults
- no stubs left behind, no detached coroutines outside src/async
- connect(2) only in the one guarded dialler and in local unix-socket code (a second dialler is a hole in the policy)
- src/guest/ calls no statfs, nor a function that does: in class 1 the agent is who answers, and would wait for itself
- source files stay below 500 lines, headers of src/ below 220; a header starts with a comment that says what it is
- a test macro under an `if` is in braces: it holds an if of its own, and g++ asks whose the else is
- InScope, the comparison of a caller's scope with a row, is used in sandbox/records.cc only: records are reached there
- a function that a header declares under a label such as `// native/usage.cc` is defined in that file
- a source file that a comment or a page of docs/ names exists; so do the page and the heading that a link leads to
- shell scripts parse and stop at the first error
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIP_DIRS = {"build", "node_modules", ".git"}
TEXT = {".h", ".cc", ".c", ".py", ".sh", ".mjs", ".js", ".md", ".cmake", ".toml", ".json", ".txt", ".yml", ""}

MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:home/(?!user\b|ubuntu\b|vercel-sandbox\b)[a-z]\w*|Users/\w+|root/\.[a-z]\w*)(?=[/\s\"'])")
REGISTRY = re.compile(r"registry\.(?:npmjs|yarnpkg)\.|(?:deb|ftp|security|snapshot)\.(?:\w+\.)?debian\.org|pypi\.org|npmmirror", re.I)
STUB = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
# Files whose subject is the pattern itself.
EXEMPT = {"tools/lint.py"}
BARE_MACRO = re.compile(r"\bif (?:constexpr )?\([^{};]*\)\s+(?:EXPECT|ASSERT)_")
CONNECT_OK = re.compile(r"^src/(egress/guarded_connect|http/client|engine/|spawner/|guest/|os/)")
MAX_HEADER = 220
SCOPE_OK = "src/sandbox/records.cc"
STATFS = re.compile(r"\b(?:f?stat(?:fs|vfs)|f?pathconf|filesystem::space|fs::space)\(")
STATFS_OK = {"src/guest/vm_init.cc"}  # has a kernel of its own
CONNECT = re.compile(r"(?:::connect\(|(?<![\w.])connect\(|async_connect\()")


def files():
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not path.is_symlink() and not SKIP_DIRS & set(parts) and path.suffix in TEXT:
            yield path, "/".join(parts)


def lint(name, text):
    out = []

    def bad(number, what):
        out.append(f"{name}:{number}: {what}")

    code = name.startswith(("src/", "tests/support/")) and name.endswith((".h", ".cc"))
    product = name.startswith("src/") and code and not name.endswith("_test.cc")
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not name.startswith("tests/") and MACHINE_PATH.search(line):
            bad(number, "path of one machine")
        if not name.endswith("package-lock.json") and REGISTRY.search(line):
            bad(number, "registry or mirror host; use the tool's configured default")
        if STUB.search(line) and (code or name.endswith((".py", ".sh"))):
            bad(number, "unfinished work")
        if product and re.search(r"asio::detached", line) and not name.startswith("src/async/"):
            bad(number, "detached task; spawn it in a TaskGroup")
        if product and CONNECT.search(line.split("//")[0]) and not CONNECT_OK.match(name):
            bad(number, "connect outside the guarded dialler")
        if product and name.startswith("src/guest/") and STATFS.search(line.split("//")[0]) and name not in STATFS_OK:
            bad(number, "statfs in the agent; see guest/statfs_service.h")
        if code and name != SCOPE_OK and re.search(r"\bInScope\b", line):
            bad(number, f"InScope outside {SCOPE_OK}; ask Records for the row")
    for m in BARE_MACRO.finditer(text) if code else ():
        bad(text.count("\n", 0, m.end()) + 1, "test macro under an if without braces")
    if code and len(lines) > 500:
        bad(len(lines), "file longer than 500 lines")
    if product and name.endswith(".h") and len(lines) > MAX_HEADER:
        bad(len(lines), f"header longer than {MAX_HEADER} lines; split it by type: one class or one group of values each, "
                        "with an opening comment, and let files include only the part that they use")
    if code and name.endswith(".h") and not text.startswith("//"):
        bad(1, "header without an opening comment")
    if code and name.endswith(".h") and "#pragma once" not in text:
        bad(1, "header without #pragma once")
    return out


SOURCE_NAME = re.compile(r"(?<![\w./<>~*-])((?:[a-z]\w*/)*[a-z]\w*\.(?:h|cc|mjs))\b(?![/.*(])")
PAGE_NAME = re.compile(r"`((?:src/)?[a-z]\w*/[\w/]*\w)(?:\.(?:h|cc))?`")


def name_problems(name, text):
    """Names of source files, in comments of code and in backticks of pages, that lead nowhere."""
    here = (ROOT / name).parent
    modules = {p.name for p in (ROOT / "src").iterdir()}

    def exists(path):
        for base in (here, ROOT, ROOT / "src", ROOT / "tests", ROOT / "src" / pathlib.PurePath(name).parts[1]):
            if any((base / (path + end)).exists() for end in ("", ".h", ".cc")):
                return True
        return False

    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(".md"):
            found = [m for m in PAGE_NAME.findall(line) if m.split("/")[0] == "src" or m.split("/")[0] in modules]
        else:
            comment = re.search(r"(?:^|\s)// (.*)", line)
            found = SOURCE_NAME.findall(comment.group(1)) if comment else []
        out += [f"{name}:{number}: {path} does not exist" for path in found if not exists(path)]
    return out


LABEL = re.compile(r"\s*// ((?:[a-z]\w*/)*[a-z]\w*\.cc)(?::.*)?$")


def declared(text):
    """(line, label, function) of every function that a header declares under a label: up to the next one or a closing brace."""
    label, statement, begin = None, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        found = LABEL.match(line)
        if found or re.match(r"\s*}", line):
            label, statement = found and found.group(1), ""
            continue
        line = line.split("//")[0].strip()
        if not label or not line or line.startswith("#"):
            continue
        begin = begin if statement else number
        statement = f"{statement} {line}"
        if not line.endswith((";", "}")):
            continue
        plain = statement
        while plain != (plain := re.sub(r"<[^<>]*>", "", plain)):
            pass
        function = re.match(r"[^=({]*?(\w+)\([^{]*;$", plain.strip())
        if function:
            yield begin, label, function.group(1)
        statement = ""


def label_problems(name, text):
    """Functions that are not defined in the file under whose name the header declares them."""
    out = []
    for number, label, function in declared(text):
        parts = pathlib.PurePath(name).parts
        places = [(ROOT / name).parent / label, ROOT.joinpath(*parts[:2]) / label, ROOT / parts[0] / label]
        source = next((p for p in places if p.exists()), None)
        # A definition begins at the left edge and comes to a brace before it comes to a semicolon.
        defines = source and re.search(rf"^[A-Za-z](?:[^\n;]*[ &*:])?{function}\([^;{{]*{{", source.read_text(), re.M)
        if source and not defines:
            out.append(f"{name}:{number}: {function} is not defined in {label}")
    return out


def headings(text):
    """The anchors of a page, as they are made of its headings."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", text, re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-"))
    return found


def link_problems(name, text):
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            path, _, anchor = target.partition("#")
            if "://" in path or path.startswith("mailto:"):
                continue
            page = (ROOT / name).parent / path if path else ROOT / name
            if not page.exists():
                out.append(f"{name}:{number}: the link leads to {path}, which does not exist")
            elif anchor and page.suffix == ".md" and anchor not in headings(page.read_text()):
                out.append(f"{name}:{number}: {path or name} has no heading for #{anchor}")
    return out


def shell_problems(path, name, text):
    if not re.match(r"#!.*\b(?:ba)?sh\b", text):
        return []
    r = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    out = [f"{name}: {r.stderr.strip()}"] if r.returncode else []
    if not re.search(r"^set -[a-z]*e", text, re.M) and not re.match(r"#!.*\b(?:ba)?sh -\w*e", text):
        out.append(f"{name}: script without `set -e`")
    return out


def self_test():
    assert lint("src/a/a.cc", 'x("/' + 'home/joe/x");\n')
    assert lint("docs/a.md", "see registry." + "npmjs.org\n")
    assert lint("src/a/a.cc", "// TO" + "DO later\n")
    assert lint("src/api/a.cc", "if (::connect(fd) < 0) {}\n")
    assert not lint("src/http/client.cc", "s.async_connect(e, t);\n")
    assert headings("## A `b` c?\n") == {"a-b-c"}
    assert link_problems("docs/a.md", "[a](nowhere.md)\n") and link_problems("docs/a.md", "[a](engines.md#nowhere)\n")
    assert not link_problems("docs/a.md", "[a](engines.md#formats)\n")
    assert lint("src/api/a.cc", "if (InScope(a, b)) {}\n") and not lint(SCOPE_OK, "bool InScope(int a) {\n")
    assert lint("src/guest/a.cc", "if (::fstatfs(fd, &fs) == 0) {}\n") and not lint("src/os/a.cc", "::fstatfs(fd, &fs);\n")
    label = "// native/usage.cc\n"
    assert not label_problems("src/api/a.h", label + "Task<> NativeUsage(Call* call);\n")
    assert label_problems("src/api/a.h", label + "// What.\nTask<std::pair<int, A>> Health(Call* call,\n  int a = 1);\n")
    assert not label_problems("src/api/a.h", label + "int a_ = F();\nint Get() { return 1; }\n}\nTask<> Health(Call* call);\n")
    assert name_problems("src/api/a.h", "// see nowhere.cc\n") and not name_problems("src/api/a.h", "// see routes.h\n")
    assert name_problems("docs/a.md", "`src/api/nowhere`\n") and not name_problems("docs/a.md", "`api/routes`\n")
    assert lint("src/a/a_test.cc", "if (a(b))\n  EXPECT_EQ(c, d);\n")
    assert not lint("src/a/a_test.cc", "if (a) b();\nEXPECT_EQ(c, d);\n")
    assert lint("src/a/a.h", "// What.\n#pragma once\n" + "\n" * MAX_HEADER)
    assert not lint("src/a/a.h", "// What.\n#pragma once\n" + "\n" * (MAX_HEADER - 2))
    assert lint("src/a/a.h", "#pragma once\n") and not lint("src/a/a.h", "// What.\n#pragma once\n")


if __name__ == "__main__":
    self_test()
    found = []
    for path, name in files():
        if name in EXEMPT:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix == "" and not text.startswith("#!"):
            continue
        found += lint(name, text) + shell_problems(path, name, text)
        if path.suffix == ".md":
            found += link_problems(name, text)
        if name.startswith(("src/", "docs/")) and path.suffix in (".h", ".cc", ".md"):
            found += name_problems(name, text)
        if name.startswith("src/") and path.suffix == ".h":
            found += label_problems(name, text)
    print("\n".join(found) or "lint: ok")
    sys.exit(1 if found else 0)
