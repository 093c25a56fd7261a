# SPDX-License-Identifier: Apache-2.0
"""cuda_library, cuda_binary and cuda_test.

`cuda_library` compiles .cu files with nvcc and hands the objects to the C++
toolchain, so the result is an ordinary CcInfo: any cc_* target may depend on
it, and linking is the C++ toolchain's (no nvcc at link time, no -rdc).
The macros for binaries and tests wrap a cuda_library in the native rule.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_cuda//:flag.bzl", "ArchInfo")
load("@local_cuda//:toolkit.bzl", "NVCC")

# No -lineinfo by default: it writes the sandbox's absolute path into the object,
# so equal inputs would give different bytes. Pass it in nvccopts to profile.
_MODE_FLAGS = {
    "dbg": ["-O0", "-g", "-lineinfo"],
    "fastbuild": ["-O1"],
    "opt": ["-O3", "-DNDEBUG"],
}

_SOURCES = [".cu", ".cu.cc", ".cu.cpp"]
_HEADERS = [".h", ".hpp", ".cuh", ".inl", ".inc"]

def _compile_one(ctx, toolchain, context, src):
    path = src.short_path
    prefix = ctx.label.package + "/"
    if path.startswith(prefix):
        path = path[len(prefix):]
    out = ctx.actions.declare_file("_objs/{}/{}.o".format(ctx.label.name, path))
    args = ctx.actions.args()
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(["-x", "cu", "-c"])

    # Intermediate names end up in the object; keep them free of process ids.
    args.add("-objtemp")
    args.add(src)
    args.add("-o", out)
    args.add("-std=c++20")
    args.add("-arch=" + (ctx.attr.arch or ctx.attr._arch[ArchInfo].name))
    args.add_all(["--expt-relaxed-constexpr", "--extended-lambda"])
    args.add_all(["-Xcompiler", "-fPIC"])
    args.add_all(_MODE_FLAGS[ctx.var["COMPILATION_MODE"]])
    args.add_all(context.defines, format_each = "-D%s")
    args.add_all(ctx.attr.local_defines, format_each = "-D%s")

    # nvcc has no -iquote of its own; the host preprocessor does.
    args.add_all(
        context.quote_includes,
        format_each = "-Xcompiler=-iquote,%s",
    )
    args.add_all(context.includes, before_each = "-I")
    args.add_all(context.system_includes, before_each = "-isystem")
    args.add_all(ctx.attr.nvccopts)

    ctx.actions.run(
        executable = NVCC,
        arguments = [args],
        inputs = depset(
            [src] + ctx.files._stamp + ctx.files.textual_hdrs,
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [out],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % src.short_path,
        env = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"},
    )
    return out

def _cuda_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [dep[CcInfo] for dep in ctx.attr.deps + [ctx.attr._cudart]]
    package = ctx.label.package
    own = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs + ctx.files.textual_hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
        includes = depset([
            root
            for inc in ctx.attr.includes
            for path in [(package + "/" + inc) if package else inc]
            for root in [path, ctx.bin_dir.path + "/" + path]
        ]),
        defines = depset(ctx.attr.defines),
    )
    context = cc_common.merge_cc_infos(cc_infos = [
        CcInfo(compilation_context = own),
    ] + [CcInfo(compilation_context = d.compilation_context) for d in deps]).compilation_context

    objects = [_compile_one(ctx, toolchain, context, src) for src in ctx.files.srcs]
    linking = []
    files = depset(objects)
    if objects:
        linking_context, outputs = cc_common.create_linking_context_from_compilation_outputs(
            actions = ctx.actions,
            feature_configuration = features,
            cc_toolchain = toolchain,
            name = ctx.label.name,
            compilation_outputs = cc_common.create_compilation_outputs(
                objects = depset(objects),
                pic_objects = depset(objects),
            ),
            linking_contexts = [d.linking_context for d in deps],
            alwayslink = ctx.attr.alwayslink,
            disallow_dynamic_library = True,
        )
        linking.append(CcInfo(linking_context = linking_context))

    info = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = context)] + linking,
        cc_infos = [CcInfo(linking_context = d.linking_context) for d in deps],
    )
    return [
        DefaultInfo(files = files, runfiles = ctx.runfiles(collect_default = True)),
        info,
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "alwayslink": attr.bool(default = False),
        "arch": attr.string(doc = "overrides --@local_cuda//:arch"),
        "data": attr.label_list(allow_files = True),
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = _HEADERS),
        "includes": attr.string_list(),
        "local_defines": attr.string_list(),
        "nvccopts": attr.string_list(),
        "srcs": attr.label_list(allow_files = _SOURCES),
        "textual_hdrs": attr.label_list(allow_files = True),
        "_arch": attr.label(default = "@local_cuda//:arch"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_cudart": attr.label(default = "@local_cuda//:cudart_static"),
        "_stamp": attr.label(default = "@local_cuda//:stamp"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
    provides = [CcInfo],
)

# target_compatible_with of whatever needs a toolkit: without one such targets are
# skipped, not broken.
NEEDS_CUDA = select({
    "@local_cuda//:cuda_enabled": [],
    "//conditions:default": ["//bazel:needs_cuda"],
})

def cuda_library(name, **kwargs):
    """A C++ library from .cu files; takes the attributes of the rule above."""
    _cuda_library(name = name, target_compatible_with = NEEDS_CUDA, **kwargs)

def _wrap(rule_, name, srcs, deps, nvccopts, local_defines, arch, kwargs):
    _cuda_library(
        name = name + "_cu",
        srcs = srcs,
        deps = deps,
        nvccopts = nvccopts,
        local_defines = local_defines,
        arch = arch,
        alwayslink = True,
        testonly = kwargs.get("testonly", False) or rule_ == native.cc_test,
        target_compatible_with = NEEDS_CUDA,
        visibility = ["//visibility:private"],
    )
    rule_(
        name = name,
        deps = [":" + name + "_cu"],
        target_compatible_with = NEEDS_CUDA,
        **kwargs
    )

def cuda_binary(name, srcs, deps = [], nvccopts = [], local_defines = [], arch = "", **kwargs):
    """cc_binary whose sources are .cu files."""
    _wrap(native.cc_binary, name, srcs, deps, nvccopts, local_defines, arch, kwargs)

def cuda_test(name, srcs, deps = [], nvccopts = [], local_defines = [], arch = "", tags = [], **kwargs):
    """cc_test whose sources are .cu files; tagged gpu, so it runs on request only."""
    kwargs["tags"] = tags + ["gpu"]
    _wrap(native.cc_test, name, srcs, deps, nvccopts, local_defines, arch, kwargs)
