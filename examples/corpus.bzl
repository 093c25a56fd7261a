# SPDX-License-Identifier: Apache-2.0
"""The repository's own text, as something to learn."""

_Sources = provider(fields = ["files"])

def _sources_aspect_impl(target, ctx):
    if target.label.workspace_name:
        return [_Sources(files = depset())]
    own = []
    for name in ("hdrs", "srcs"):
        for each in getattr(ctx.rule.attr, name, []):
            own += [f for f in each.files.to_list() if f.is_source and not f.owner.workspace_name]
    below = [d[_Sources].files for d in getattr(ctx.rule.attr, "deps", []) if _Sources in d]
    return [_Sources(files = depset(own, transitive = below))]

_sources_aspect = aspect(attr_aspects = ["deps"], implementation = _sources_aspect_impl)

def _corpus_impl(ctx):
    files = depset(ctx.files.data, transitive = [d[_Sources].files for d in ctx.attr.deps])
    names = sorted([f.short_path for f in files.to_list()])
    ctx.actions.write(ctx.outputs.out, "".join([n + "\n" for n in names]))
    runfiles = ctx.runfiles(files = [ctx.outputs.out], transitive_files = files)
    return [DefaultInfo(files = depset([ctx.outputs.out]), runfiles = runfiles)]

corpus = rule(
    implementation = _corpus_impl,
    doc = "A list of this repository's files, in path order, with the files as runfiles: the " +
          "sources of C++ targets and of all that they depend on, and further files.",
    attrs = {
        "data": attr.label_list(allow_files = True, doc = "Further files."),
        "deps": attr.label_list(aspects = [_sources_aspect], providers = [CcInfo]),
        "out": attr.output(mandatory = True, doc = "The list."),
    },
)
