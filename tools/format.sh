#!/bin/bash
# clang-format over the C++ sources: rewrites them, or with --check fails when that would change something.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
find src fuzz bench tests \( -name '*.h' -o -name '*.cc' \) -not -path '*/node_modules/*' -print0 | xargs -0 -r clang-format-19 "${mode[@]}"
