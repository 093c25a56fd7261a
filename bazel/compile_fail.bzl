# SPDX-License-Identifier: Apache-2.0
"""The rule behind compile_fail_test in protrain.bzl.

The file is compiled by an ordinary action, with the toolchain's compiler and the
flags and include folders that a cc_test with the same deps would get. The action
writes what happened into a log and succeeds either way; the test shows the log,
so a wrong message is a failed test and not a broken build.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_TEST = """\
#!/bin/sh
cat "{log}"
test "$(tail -n 1 "{log}")" = "verdict: as expected"
"""

def _compile_fail_test_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        include_directories = context.includes,
        quote_include_directories = depset([".", ctx.bin_dir.path], transitive = [context.quote_includes]),
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
    )
    log = ctx.actions.declare_file(ctx.label.name + ".log")
    args = ctx.actions.args()
    args.add(log)
    args.add(ctx.file.src)
    args.add(cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    ))
    args.add_all(cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    ))
    ctx.actions.run(
        executable = ctx.executable._compile,
        arguments = [args],
        inputs = depset([ctx.file.src], transitive = [context.headers, toolchain.all_files]),
        outputs = [log],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        mnemonic = "CompileFail",
        progress_message = "Compiling %s, which must fail" % ctx.file.src.short_path,
        use_default_shell_env = True,
    )
    test = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(test, _TEST.format(log = log.short_path), is_executable = True)
    return [DefaultInfo(executable = test, runfiles = ctx.runfiles(files = [log]))]

compile_fail_test = rule(
    implementation = _compile_fail_test_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "src": attr.label(allow_single_file = [".cpp"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_compile": attr.label(default = "//bazel:compile_fail", executable = True, cfg = "exec"),
    },
    fragments = ["cpp"],
    test = True,
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
