# SPDX-License-Identifier: Apache-2.0
"""Wraps a library that the operating system already installed.

Only the named header folders are linked into the repository, so a target that
forgets its dependency does not find them through `-isystem external/...`.
"""

_ROOTS = ["/usr/include", "/usr/local/include"]

_BUILD = """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    linkopts = {linkopts},
)
"""

_MISSING = """\
package(default_visibility = ["//visibility:public"])

genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo 'error: {probe} was not found; install {hint} (or run tools/setup)' >&2; exit 1",
)

cc_library(
    name = "{name}",
    hdrs = [":missing"],
)
"""

def _system_library_impl(rctx):
    below = "/" + rctx.attr.subfolder if rctx.attr.subfolder else ""
    for root in [prefix + below for prefix in _ROOTS]:
        if rctx.path(root + "/" + rctx.attr.probe).exists:
            for folder in rctx.attr.headers:
                rctx.symlink(root + "/" + folder, "include/" + folder)
            rctx.file("BUILD.bazel", _BUILD.format(
                name = rctx.name,
                linkopts = repr(rctx.attr.linkopts),
            ))
            return
    rctx.file("BUILD.bazel", _MISSING.format(
        name = rctx.name,
        probe = rctx.attr.probe,
        hint = rctx.attr.package_hint,
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    attrs = {
        "headers": attr.string_list(mandatory = True),
        "linkopts": attr.string_list(),
        "package_hint": attr.string(mandatory = True),
        "probe": attr.string(mandatory = True),
        "subfolder": attr.string(doc = "folder below the include root that holds the headers"),
    },
)
