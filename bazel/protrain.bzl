# SPDX-License-Identifier: Apache-2.0
"""The targets that protrain is made of.

  protrain_library        headers of one folder, plus a translation unit that includes each twice
  protrain_test           one doctest file
  protrain_static_test    a file of static_assert: building it is passing
  compile_fail_test       a file that must be refused, with the message it states
  protrain_binary         an example or a tool
  protrain_bench          a Google Benchmark program, tagged bench
  protrain_cuda_library, protrain_cuda_test, protrain_cuda_binary   the same through nvcc
"""

load("//bazel:compile_fail.bzl", _compile_fail_test = "compile_fail_test")
load("//bazel:cuda.bzl", "NEEDS_CUDA", "cuda_binary", "cuda_library", "cuda_test")
load("//tools:copts.bzl", "PROTRAIN_COPTS", "PROTRAIN_NVCC_COPTS")

_DOCTEST = ["//test/support:doctest_main", "@doctest"]

def protrain_library(name, hdrs, deps = [], self_check = "self_check.cc", cuda = False, copts = [], **kwargs):
    """The headers of a folder below include/, included as "protrain/<folder>/<header>.hpp".

    Args:
      name: the folder's name.
      hdrs: every header, one by one.
      deps: what the headers include.
      self_check: written by tools/self_checks; a second library of a package names its own.
      cuda: the headers include CUDA's; the target is skipped where there is no toolkit.
      copts: further compiler options of the self check.
      **kwargs: as for cc_library.
    """
    if cuda:
        kwargs["target_compatible_with"] = NEEDS_CUDA
        deps = deps + ["@local_cuda//:headers"]
    kwargs.setdefault("visibility", ["//visibility:public"])
    native.cc_library(
        name = name,
        srcs = [self_check],
        hdrs = hdrs,
        copts = PROTRAIN_COPTS + copts,
        linkstatic = True,
        strip_include_prefix = "/include",
        deps = deps,
        **kwargs
    )

def protrain_test(name, srcs = None, deps = [], size = "small", copts = [], **kwargs):
    """One doctest file, <name>.cpp unless srcs says otherwise.

    Tags: `long` and `gpu` run on request only; `tsan` also runs under ThreadSanitizer in CI.

    Args:
      name: <header>_test.
      srcs: the file and helpers that only it uses.
      deps: what the file includes, doctest aside.
      size: small (60 s), medium (300 s) or large (900 s).
      copts: further compiler options.
      **kwargs: as for cc_test.
    """
    kwargs.setdefault("linkstatic", True)
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cpp"],
        copts = PROTRAIN_COPTS + copts,
        deps = deps + _DOCTEST,
        **kwargs
    )

def protrain_static_test(name, srcs = None, deps = [], copts = [], **kwargs):
    """A file of static_assert, <name>.cpp unless srcs says otherwise: building it is passing."""
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs or [name + ".cpp"],
        copts = PROTRAIN_COPTS + copts,
        linkstatic = True,
        deps = deps + ["//test/support:static_main"],
        **kwargs
    )

def compile_fail_test(name, src = None, deps = [], copts = [], **kwargs):
    """A file with a fault, <name>.cpp unless src says otherwise.

    The file holds `// expect: REGEX` (extended, as for grep -E) and code under `#if FAULT_ON`.
    It must be refused with that message when FAULT_ON is 1, and compile when FAULT_ON is 0.
    With several expect lines the n-th belongs to FAULT_ON == n.
    """
    _compile_fail_test(
        name = name,
        size = "small",
        src = src or name + ".cpp",
        copts = PROTRAIN_COPTS + copts,
        deps = deps,
        **kwargs
    )

def protrain_binary(name, srcs = None, deps = [], copts = [], **kwargs):
    """A program, <name>.cpp unless srcs says otherwise; tag `smoke` has tools/smoke run it in CI."""
    native.cc_binary(
        name = name,
        srcs = srcs or [name + ".cpp"],
        copts = PROTRAIN_COPTS + copts,
        deps = deps,
        **kwargs
    )

def protrain_bench(name, srcs = None, deps = [], copts = [], tags = [], **kwargs):
    """A Google Benchmark program, <name>.cpp unless srcs says otherwise; the file has BENCHMARK_MAIN()."""
    native.cc_binary(
        name = name,
        srcs = srcs or [name + ".cpp"],
        copts = PROTRAIN_COPTS + copts,
        tags = tags + ["bench"],
        deps = deps + ["@google_benchmark"],
        **kwargs
    )

def protrain_cuda_library(name, hdrs, deps = [], self_check = "self_check.cu", nvccopts = [], **kwargs):
    """Headers that only nvcc reads (.cuh), included as "protrain/<folder>/<header>.cuh"."""
    kwargs.setdefault("visibility", ["//visibility:public"])
    native.cc_library(
        name = name,
        hdrs = hdrs,
        strip_include_prefix = "/include",
        target_compatible_with = NEEDS_CUDA,
        deps = deps,
        **kwargs
    )
    cuda_library(
        name = name + "_self_check",
        srcs = [self_check],
        nvccopts = PROTRAIN_NVCC_COPTS + nvccopts,
        visibility = ["//visibility:private"],
        deps = [":" + name],
    )

def protrain_cuda_test(name, srcs = None, deps = [], size = "small", nvccopts = [], **kwargs):
    """One doctest file, <name>.cu unless srcs says otherwise; built by //..., run with --config=gpu."""
    cuda_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cu"],
        nvccopts = PROTRAIN_NVCC_COPTS + nvccopts,
        deps = deps + _DOCTEST,
        **kwargs
    )

def protrain_cuda_binary(name, srcs = None, deps = [], nvccopts = [], tags = [], **kwargs):
    """A program, <name>.cu unless srcs says otherwise; tagged gpu."""
    cuda_binary(
        name = name,
        srcs = srcs or [name + ".cu"],
        nvccopts = PROTRAIN_NVCC_COPTS + nvccopts,
        tags = tags + ["gpu"],
        deps = deps,
        **kwargs
    )
