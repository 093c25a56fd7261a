# SPDX-License-Identifier: Apache-2.0
"""The targets that protrain is made of.

  protrain_library        headers of one folder, plus a translation unit that includes each twice
  protrain_tests          the doctest files of one folder: compiled together, a test each
  protrain_joint_tests    the files of several folders in one program, for sanitizers
  protrain_test           one doctest file that is compiled by itself
  protrain_static_test    a file of static_assert: building it is passing
  compile_fail_test       a file that must be refused, with the message it states
  protrain_binary         an example or a tool
  protrain_bench          a Google Benchmark program, tagged bench
  protrain_cuda_library, protrain_cuda_test, protrain_cuda_static_test, protrain_cuda_binary
                          the same through nvcc
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
        srcs = select({
            "//bazel:without_self_checks": [],
            "//conditions:default": [self_check],
        }),
        hdrs = hdrs,
        copts = PROTRAIN_COPTS + copts,
        linkstatic = True,
        strip_include_prefix = "/include",
        deps = deps,
        **kwargs
    )

def _tests_source(name, srcs):
    native.genrule(
        name = name + "_source",
        testonly = True,
        srcs = srcs,
        outs = [name + ".cc"],
        cmd = "for file in $(SRCS); do echo \"#include \\\"$$file\\\"\"; done > $@",
    )

def protrain_tests(name, tests, hdrs = [], deps = [], copts = [], joint = None):
    """The doctest files of a folder: one translation unit includes them all, each is a test.

    What a test costs to compile is the headers and the inline functions it uses, and its
    neighbours use the same: together they cost little more than the dearest of them. The files
    share a scope, so each has a namespace of its own, named as the file.

    Tags: `long` and `gpu` run on request only. Which folders run under ThreadSanitizer in CI,
    .ci/run says.

    Args:
      name: <folder>_tests.
      tests: by name, <header>_test for <header>_test.cpp: attributes of the test. Beside those of
        sh_test there are `file`, where the test's name isn't its file's, and `env`, a dict.
      hdrs: helpers that only these files include.
      deps: what the files include, doctest aside.
      copts: further compiler options.
      joint: a protrain_joint_tests, which sanitizers compile in place of this folder's own program.
    """
    files = []
    for test in sorted(tests):
        file = tests[test].get("file", test + ".cpp")
        if file not in files:
            files.append(file)
    _tests_source(name, files)
    native.filegroup(
        name = name + "_sources",
        testonly = True,
        srcs = files,
        visibility = ["//test:__subpackages__"],
    )
    native.cc_library(
        name = name + "_files",
        testonly = True,
        hdrs = hdrs,
        textual_hdrs = files,
        visibility = ["//test:__subpackages__"],
        deps = deps,
    )
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        copts = PROTRAIN_COPTS + copts,
        target_compatible_with = _unless_joint([], ["//bazel:in_another_program"]) if joint else [],
        deps = [name + "_files"] + _DOCTEST,
    )
    for test in sorted(tests):
        attributes = dict(tests[test])
        file = attributes.pop("file", test + ".cpp")
        settings = attributes.pop("env", {})
        native.sh_test(
            name = test,
            size = attributes.pop("size", "small"),
            srcs = ["//test/support:run_file.sh"],
            args = ["%s=%s" % setting for setting in sorted(settings.items())] +
                   _unless_joint(["$(location :%s)" % name], ["$(location %s)" % joint], joint) +
                   [native.package_name() + "/" + file],
            data = _unless_joint([name], [joint], joint) + attributes.pop("data", []),
            **attributes
        )

def _unless_joint(separate, joint, where = True):
    return separate if not where else select({
        "//bazel:joint": joint,
        "//conditions:default": separate,
    })

def protrain_joint_tests(name, folders):
    """One program of the tests of several folders, for sanitizers: compiling it costs less than theirs.

    Elsewhere each folder keeps its own, which finds what a file forgot to include or depend on.

    Args:
      name: <what>_tests.
      folders: their protrain_tests, whose `joint` this is.
    """
    _tests_source(name, [folder + "_sources" for folder in folders])
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        copts = PROTRAIN_COPTS,
        target_compatible_with = _unless_joint(["//bazel:in_another_program"], []),
        visibility = ["//test:__subpackages__"],
        deps = [folder + "_files" for folder in folders] + _DOCTEST,
    )

def protrain_test(name, srcs = None, deps = [], size = "small", copts = [], **kwargs):
    """One doctest file, <name>.cpp unless srcs says otherwise, compiled with options of its own.

    Tags: as for protrain_tests.

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

def protrain_static_test(name, srcs = None, deps = [], copts = [], tags = [], **kwargs):
    """A file of static_assert, <name>.cpp unless srcs says otherwise: building it is passing.

    Tagged static, as compile_fail_test: there is nothing to run, under sanitizers for one.
    """
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs or [name + ".cpp"],
        copts = PROTRAIN_COPTS + copts,
        linkstatic = True,
        tags = tags + ["static"],
        deps = deps + ["//test/support:static_main"],
        **kwargs
    )

def compile_fail_test(name, src = None, deps = [], copts = [], tags = [], **kwargs):
    """A file with a fault, <name>.cpp unless src says otherwise.

    The file holds `// expect: REGEX` (extended, as for grep -E) and code under `#if FAULT_ON`.
    It must be refused with that message when FAULT_ON is 1, and compile when FAULT_ON is 0.
    With several expect lines the n-th belongs to FAULT_ON == n. Lines `// and: REGEX` below it are
    further messages of the same compilation.
    """
    _compile_fail_test(
        name = name,
        size = "small",
        src = src or name + ".cpp",
        copts = PROTRAIN_COPTS + copts,
        tags = tags + ["static"],
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

def protrain_cuda_static_test(name, srcs = None, deps = [], nvccopts = [], **kwargs):
    """A file of static_assert for nvcc, <name>.cu unless srcs says otherwise; it needs no GPU."""
    cuda_test(
        name = name,
        size = "small",
        srcs = srcs or [name + ".cu"],
        nvccopts = PROTRAIN_NVCC_COPTS + nvccopts,
        deps = deps + ["//test/support:static_main"],
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
