# SPDX-License-Identifier: Apache-2.0
"""Finds a CUDA toolkit and exposes it as a repository.

The repository always has the same labels, so BUILD files never need to know
whether a toolkit is there:

  :cuda_enabled   config_setting, true when nvcc was found and not switched off
  :enabled        bool flag behind it (--@local_cuda//:enabled=false turns it off)
  :arch           string flag, nvcc's -arch (--@local_cuda//:arch=sm_86); the default is
                  the first GPU's, or sm_90 on a machine without one
  :headers        headers for host-only C++ translation units
  :cudart_static, :cublas, :cublasLt, :nccl, :cudnn
  :stamp          small text file that changes when the toolkit does
  toolkit.bzl     NVCC, CUDA_HOME, VERSION, HAS_NCCL, HAS_CUDNN
"""

_FLAG_BZL = """\
def _bool_setting_impl(ctx):
    return []

bool_setting = rule(
    implementation = _bool_setting_impl,
    build_setting = config.bool(flag = True),
)

ArchInfo = provider(fields = ["name"])

def _arch_setting_impl(ctx):
    return [ArchInfo(name = ctx.build_setting_value)]

arch_setting = rule(
    implementation = _arch_setting_impl,
    build_setting = config.string(flag = True),
)
"""

_TOOLKIT_BZL = """\
CUDA_HOME = {home}
NVCC = {nvcc}
VERSION = {version}
HAS_NCCL = {has_nccl}
HAS_CUDNN = {has_cudnn}
"""

_COMMON = """\
load(":flag.bzl", "arch_setting", "bool_setting")

package(default_visibility = ["//visibility:public"])

bool_setting(
    name = "enabled",
    build_setting_default = {enabled},
)

arch_setting(
    name = "arch",
    build_setting_default = {arch},
)

config_setting(
    name = "cuda_enabled",
    flag_values = {{":enabled": "True"}},
)

filegroup(
    name = "stamp",
    srcs = ["stamp.txt"],
)
"""

_HEADERS = """
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = [
        "include",
        "include/cccl",
    ],
)
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
)
"""

_LIBRARIES = {
    "cudart_static": ("libcudart_static.a", ["-lcudart_static", "-lrt", "-ldl", "-lpthread"]),
    "cublas": ("libcublas.so", ["-lcublas", "-lcublasLt"]),
    "cublasLt": ("libcublasLt.so", ["-lcublasLt"]),
    "nccl": ("libnccl.so", ["-lnccl"]),
    "cudnn": ("libcudnn.so", ["-lcudnn"]),
}

def _find_home(rctx):
    candidates = [rctx.os.environ[v] for v in ["CUDA_HOME", "CUDA_PATH"] if rctx.os.environ.get(v)]
    candidates.append("/usr/local/cuda")
    for home in candidates:
        if home.startswith("/") and rctx.path(home + "/bin/nvcc").exists:
            return str(rctx.path(home))
    return None

def _nvcc_version(rctx, nvcc):
    result = rctx.execute([nvcc, "--version"])
    if result.return_code != 0:
        return None
    for line in result.stdout.splitlines():
        if "release" in line:
            return line.split("release")[1].split(",")[0].strip()
    return None

def _gpu_arch(rctx):
    smi = rctx.which("nvidia-smi")
    if smi:
        result = rctx.execute([smi, "--query-gpu=compute_cap", "--format=csv,noheader"])
        lines = result.stdout.splitlines()
        digits = lines[0].strip().replace(".", "") if result.return_code == 0 and lines else ""
        if digits.isdigit():
            return "sm_" + digits
    return "sm_90"

def _cuda_configure_impl(rctx):
    home = _find_home(rctx)
    version = _nvcc_version(rctx, home + "/bin/nvcc") if home else None
    enabled = version != None
    lib_dir = None
    if enabled:
        for sub in ["lib64", "lib", "targets/x86_64-linux/lib"]:
            if rctx.path(home + "/" + sub + "/libcudart_static.a").exists:
                lib_dir = home + "/" + sub
                break
        if not lib_dir:
            enabled = False

    found = {}
    build = _COMMON.format(
        arch = repr(_gpu_arch(rctx) if enabled else "sm_90"),
        enabled = repr(enabled),
    )
    if enabled:
        rctx.symlink(home + "/include", "include")
        build += _HEADERS
    else:
        build += _LIBRARY.format(name = "headers", linkopts = "[]")
    for name, (file, linkopts) in _LIBRARIES.items():
        found[name] = enabled and rctx.path(lib_dir + "/" + file).exists
        flags = []
        if found[name]:
            flags = ["-L" + lib_dir] + linkopts
            if not file.endswith(".a"):
                flags.append("-Wl,-rpath," + lib_dir)
        build += _LIBRARY.format(name = name, linkopts = repr(flags))

    rctx.file("flag.bzl", _FLAG_BZL)
    rctx.file("toolkit.bzl", _TOOLKIT_BZL.format(
        home = repr(home or ""),
        nvcc = repr(home + "/bin/nvcc" if enabled else ""),
        version = repr(version or ""),
        has_nccl = repr(found["nccl"]),
        has_cudnn = repr(found["cudnn"]),
    ))
    rctx.file("stamp.txt", "{} {}\n".format(home or "none", version or "none"))
    rctx.file("BUILD.bazel", build)

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    local = True,
    configure = True,
    environ = ["CUDA_HOME", "CUDA_PATH"],
)
