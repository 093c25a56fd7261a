#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: compile_fail.sh LOG SOURCE COMPILER [FLAG ...]
#
# Compiles SOURCE with FAULT_ON=0, which must succeed, and with FAULT_ON=n for its
# n-th `// expect: REGEX` line, which must fail with an error that matches REGEX.
# Writes what happened to LOG; the last line is the verdict. Always exits 0.
set -u
log=$1 source=$2
shift 2

output=$(mktemp) assembly=$(mktemp)
trap 'rm -f "$output" "$assembly"' EXIT
export LC_ALL=C

compile() {  # compile N FLAG...: the compiler's messages go to $output
  local fault=$1
  shift
  "$@" "-DFAULT_ON=$fault" -fdiagnostics-color=never -S -o "$assembly" -x c++ "$source" >"$output" 2>&1
}

check() {
  mapfile -t expected < <(sed -n 's|^ *// expect: ||p' "$source")
  if [ "${#expected[@]}" -eq 0 ]; then
    echo "$source: no line '// expect: REGEX'"
    return 1
  fi
  if ! compile 0 "$@"; then
    echo "$source: does not compile with its fault switched off:"
    cat "$output"
    return 1
  fi
  local n=0 regex
  for regex in "${expected[@]}"; do
    n=$((n + 1))
    if compile "$n" "$@"; then
      echo "$source: compiles with FAULT_ON=$n; expected: $regex"
      return 1
    fi
    # An error or a note of it, not the source line that the compiler quotes.
    if ! grep -E '(error|note|required from)' "$output" | grep -qE -e "$regex"; then
      echo "$source: FAULT_ON=$n is refused, but not with: $regex"
      cat "$output"
      return 1
    fi
    echo "$source: FAULT_ON=$n is refused with: $regex"
  done
}

{
  if check "$@"; then
    echo "verdict: as expected"
  else
    echo "verdict: not as expected"
  fi
} >"$log"
