# SPDX-License-Identifier: Apache-2.0
"""Offline stand-in for @rules_cc: the names map onto Bazel's native rules."""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
