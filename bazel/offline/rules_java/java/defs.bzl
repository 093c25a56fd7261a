# SPDX-License-Identifier: Apache-2.0
"""Offline stand-in for @rules_java: only what @bazel_tools//tools/jdk loads."""

java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
