# SPDX-License-Identifier: Apache-2.0
"""The warnings that every translation unit of the project is compiled with."""

PROTRAIN_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Werror",
]

# Through nvcc: no -Wpedantic, because the code that nvcc generates for the host
# compiler is not pedantic itself.
PROTRAIN_NVCC_COPTS = [
    "-Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion,-Wsign-conversion,-Werror",
    "-Werror=all-warnings",
]
