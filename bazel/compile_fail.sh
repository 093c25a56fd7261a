#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: compile_fail.sh LOG SOURCE COMPILER [FLAG ...]
#
# Compiles SOURCE with FAULT_ON=0, which must succeed, and with FAULT_ON=n for its
# n-th `// expect: REGEX` line, which must fail with an error that matches REGEX, and
# with one for each `// and: REGEX` that follows.
# Writes what happened to LOG; the last line is the verdict. Always exits 0.
set -u
log=$1 source=$2
shift 2

output=$(mktemp)
trap 'rm -f "$output"' EXIT
export LC_ALL=C

compile() {  # compile N FLAG...: the compiler's messages go to $output
  local fault=$1
  shift
  "$@" "-DFAULT_ON=$fault" -fdiagnostics-color=never -fsyntax-only -x c++ "$source" >"$output" 2>&1
}

refused_with() {  # refused_with N REGEX: an error or a note of it, not a source line that is quoted
  if ! grep -E '(error|note|required from)' "$output" | grep -qE -e "$2"; then
    echo "$source: FAULT_ON=$1 is refused, but not with: $2"
    cat "$output"
    return 1
  fi
  echo "$source: FAULT_ON=$1 is refused with: $2"
}

check() {
  mapfile -t expected < <(sed -nE 's,^ *// (expect|and): ,\1 ,p' "$source")
  if [[ ${expected[0]-} != expect\ * ]]; then
    echo "$source: no line '// expect: REGEX'"
    return 1
  fi
  if ! compile 0 "$@"; then
    echo "$source: does not compile with its fault switched off:"
    cat "$output"
    return 1
  fi
  local n=0 line
  for line in "${expected[@]}"; do
    if [[ $line == expect\ * ]]; then
      n=$((n + 1))
      if compile "$n" "$@"; then
        echo "$source: compiles with FAULT_ON=$n; expected: ${line#* }"
        return 1
      fi
    fi
    refused_with "$n" "${line#* }" || return 1
  done
}

{
  if check "$@"; then
    echo "verdict: as expected"
  else
    echo "verdict: not as expected"
  fi
} >"$log"
