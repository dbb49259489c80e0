#!/usr/bin/env python3
"""Keeps coroutine code to the shapes that every supported compiler gets right (see CONTRIBUTING.md).

In a statement that awaits: one co_await, no braces, no lambda, no ?:. g++ 12 double-frees temporaries otherwise.
src/async is exempt: it is the layer that builds the primitives. The check tests itself before it reads the tree.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blank(text):
    """Same length, but comments and literals are spaces: positions stay right, their contents do not count."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)


def statement(text, at):
    """The statement around position `at`: from the last ; { } outside parentheses to the ; or { that ends it."""
    depth, start = 0, at
    while start > 0:
        c = text[start - 1]
        if c in ")]":
            depth += 1
        elif c in "([":
            depth -= 1
        elif c in ";{}" and depth <= 0:
            # "for (a; co_await b; …)" and "if (init; cond)": a ';' inside an open parenthesis ends the search too.
            break
        start -= 1
    depth, end = 0, start
    while end < len(text):
        c = text[end]
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == ";" and depth <= 0:
            break
        elif c == "{" and depth == 0:
            break
        end += 1
    return text[start:end]


def problems_in(text):
    text = blank(text)
    found, last = [], None
    for m in re.finditer(r"\bco_await\b", text):
        s = statement(text, m.start())
        line = text.count("\n", 0, m.start()) + 1
        if s.count("co_await") > 1 and (s, "n") != last:
            found.append((line, "more than one co_await in a statement"))
            last = (s, "n")
        if "{" in s:
            found.append((line, "braces or a lambda body in an awaiting statement"))
        if re.search(r"\?(?!\?)", s):
            found.append((line, "?: in an awaiting statement"))
    return found


def self_test():
    good = """Task<> F() { auto r = co_await G(std::move(x)); if (!r) co_return r; // co_await a, co_await b
      if (auto v = co_await H(); !v) { co_return v; } SB_CO_TRY(auto z, co_await G(a)); auto [ec] = co_await t.w(k); }"""
    assert problems_in(good) == [], problems_in(good)
    for bad in ("f(co_await a(), co_await b());", "co_await f({1, 2});", "x = c ? co_await a() : b;",
                "co_await f(Agg{.a = 1});", "co_await run([p] { return p; });"):
        assert problems_in("void F() { " + bad + " }"), bad


if __name__ == "__main__":
    self_test()
    bad = 0
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".h", ".cc") and path.parent != ROOT / "src/async":
            for line, what in problems_in(path.read_text()):
                print(f"{path.relative_to(ROOT)}:{line}: {what}")
                bad += 1
    print("await statements: ok" if not bad else f"{bad} problem(s); name the pieces in statements of their own")
    sys.exit(1 if bad else 0)
