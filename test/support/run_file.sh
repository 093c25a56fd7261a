#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the test cases of one file. Usage: run_file.sh [NAME=VALUE ...] BINARY FILE [OPTION ...]
set -eu
settings=()
while [[ $1 == *=* ]]; do
  settings+=("$1")
  shift
done
binary=$1 file=$2
shift 2
# A file without a case would pass: doctest is content with nothing to do.
"$binary" --list-test-cases --no-version --source-file="*/$file,$file" | grep -q 'unskipped test cases passing the current filters: [1-9]' ||
  {
    echo "$file: no test cases in $binary" >&2
    exit 1
  }
# The cases of the other files aren't skipped: they are other tests'.
exec env "${settings[@]}" "$binary" --no-skipped-summary=1 --source-file="*/$file,$file" "$@"
