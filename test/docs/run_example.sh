#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the program of one document. Usage: run_example.sh BINARY NAME
set -eu
exec "$1" "$2"
