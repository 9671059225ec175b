#!/usr/bin/env bash
# The checks of the sources must find what they look for: each runs over a small tree with one fault of each kind.
#   check_scripts_test.sh FOLDER-OF-THE-SCRIPTS
set -euo pipefail
scripts=$(cd "$1" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{scripts,include/dtrain/{core,comm,attic},docs,examples/x}
cp "$scripts"/check_* "$tree/scripts/"
cd "$tree"

failures=0
# must_fail SCRIPT TEXT: the script fails, and prints the text.
must_fail() {
  local output
  if output=$("scripts/$1" 2>&1); then
    echo "$1 passed, and should have said: $2" >&2
    failures=$((failures + 1))
  elif ! grep -qF -- "$2" <<<"$output"; then
    printf '%s did not say: %s\nIt said:\n%s\n' "$1" "$2" "$output" >&2
    failures=$((failures + 1))
  fi
}
must_pass() {
  local output
  if ! output=$("scripts/$1" 2>&1); then
    printf '%s failed on a good tree:\n%s\n' "$1" "$output" >&2
    failures=$((failures + 1))
  fi
}
header() { printf '// A header.\n#pragma once\n%s\n' "$2" >"include/dtrain/$1"; }

header core/a.hpp ""
header comm/b.hpp '#include "dtrain/core/a.hpp"'
scripts/check_umbrella --write
for script in check_rooms check_style check_umbrella check_snippets; do must_pass $script; done

header core/a.hpp '#include "dtrain/comm/b.hpp"'
must_fail check_rooms 'include/dtrain/core/a.hpp:3: room "core" includes "dtrain/comm/b.hpp"'
header core/a.hpp '#include <dtrain/comm/b.hpp>'
must_fail check_rooms 'include/dtrain/core/a.hpp:3: room "core" includes "dtrain/comm/b.hpp"'
header core/a.hpp '#include "dtrain/dtrain.hpp"'
must_fail check_rooms 'include/dtrain/core/a.hpp:3: includes the umbrella'
header core/a.hpp '#include "dtrain/attic/c.hpp"'
must_fail check_rooms '"attic" is no room'
header core/a.hpp ""
header attic/c.hpp ""
must_fail check_rooms 'include/dtrain/attic/c.hpp:1: the folder "attic" is no room'
rm include/dtrain/attic/c.hpp
header loose.hpp ""
must_fail check_rooms 'include/dtrain/loose.hpp:1: a header must lie in a room'
rm include/dtrain/loose.hpp
must_pass check_rooms

style_fault() {
  header core/a.hpp "$1"
  must_fail check_style "include/dtrain/core/a.hpp:3: $2"
}
style_fault '#include <iostream>' '<iostream> is too heavy'
style_fault 'inline void f() { std::printf("x"); }' 'a header prints nothing'
style_fault 'inline void f() { std::cout << 1; }' 'a header prints nothing'
style_fault 'inline void f() { std::exit(1); }' 'a header ends no process'
style_fault 'using namespace std;' 'no using namespace'
style_fault 'class MemoryManager;' 'a name with helper, utils or manager'
style_fault '// TODO later' 'no reminders'
style_fault 'int a; ' 'white space at the end'
style_fault $'\tint a;' 'a tab'
header core/a.hpp "$(seq 1 500 | sed 's|^|// |')"
must_fail check_style 'more than 400'
printf '// A header.\n' >include/dtrain/core/a.hpp
must_fail check_style 'has no #pragma once'
printf '#pragma once\n' >include/dtrain/core/a.hpp
must_fail check_style 'one sentence of purpose'
header core/a.hpp 'inline int f(char* out) { return std::snprintf(out, 1, "exit(1); printf(2)"); }'
must_pass check_style
header core/a_utils.hpp ""
must_fail check_style 'the file name says nothing'
rm include/dtrain/core/a_utils.hpp

header core/d.hpp ""
must_fail check_umbrella 'does not include "dtrain/core/d.hpp"'
scripts/check_umbrella --write
must_pass check_umbrella
rm include/dtrain/core/d.hpp
must_fail check_umbrella 'includes "dtrain/core/d.hpp", which is not a public header'

printf 'int main() {\n  // [snippet body]\n  int a;\n    int b;\n  // [end snippet]\n}\n' >examples/x/x.cpp
guide() { printf 'Text.\n\n<!-- snippet: examples/x/x.cpp %s -->\n```cpp\n%s\n```\n' "$1" "$2" >docs/guide.md; }
guide body $'int a;\n  int b;'
must_pass check_snippets
guide body $'int a;\n  int c;'
must_fail check_snippets "docs/guide.md:3: differs from the part 'body' of examples/x/x.cpp"
guide tail 'int a;'
must_fail check_snippets "has no line '// [snippet tail]'"
rm examples/x/x.cpp
must_fail check_snippets 'quotes examples/x/x.cpp, which does not exist'

if [ "$failures" -gt 0 ]; then
  echo "$failures failures" >&2
  exit 1
fi
