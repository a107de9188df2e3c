"""llama.cpp, built once from the source distribution that llama-cpp-python wraps, and used three ways.

The shared libraries serve llama-cpp-python, ``llama-server`` serves people, and the converters that lie beside them
write the GGUF files: all three are of one version. What is kept lies in ``.envs/gguf/llama.cpp``; the source and the
object files (400 MB) are removed at the end. An interrupted build goes on where it was.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from scripts.environments.stages import ENVS, LOCKS, BuildError, pinned
from scripts.environments.tools import run, say

PACKAGE = "llama-cpp-python"
HOME = ENVS / "gguf" / "llama.cpp"
BUILD = ENVS / "gguf.build"
CONVERTERS = ("convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "conversion", "gguf-py", "LICENSE")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_C_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_ALL_WARNINGS": "OFF",
    "GGML_ALL_WARNINGS": "OFF",
    "GGML_CCACHE": "OFF",
}
"""CMake's options: the shared libraries and the server, nothing that is fetched, one processor's instructions."""


def split_lock(lock: str) -> tuple[str, str]:
    """A lock without llama-cpp-python, and the part of it that pins llama-cpp-python.

    :raises BuildError: the lock does not pin it with a hash.
    """
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    ours = [block for block in blocks if block.startswith(f"{PACKAGE}==")]
    if len(ours) != 1 or "--hash=sha256:" not in ours[0]:
        raise BuildError(f"envs/gguf.lock does not pin {PACKAGE} with a hash; run `make locks`")
    return "".join(block for block in blocks if block is not ours[0]), ours[0]


def ninja_progress(line: str) -> str | None:
    """``[120/212] Building …`` as ``120 of 212 files``."""
    match = re.match(r"\[(\d+)/(\d+)\]", line)
    return f"{match.group(1)} of {match.group(2)} files" if match else None


def wrapped_commit(changelog: str) -> str | None:
    """Commit of llama.cpp that the newest released entry of llama-cpp-python's changelog names."""
    match = re.search(r"ggml-org/llama\.cpp@([0-9a-f]{7,40})", changelog)
    return match.group(1) if match else None


def fetch_source(log: Path, env: Mapping[str, str]) -> Path:
    """Download the pinned source distribution with pip, which checks its hash, and unpack it."""
    version = pinned((LOCKS / "gguf.lock").read_text(), PACKAGE)
    source = BUILD / f"source-{version}"
    if source.exists():
        return source
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    requirement = BUILD / "llama-cpp-python.lock"
    requirement.write_text(split_lock((LOCKS / "gguf.lock").read_text())[1])
    say(f"downloading {PACKAGE} {version}")
    pip: list[str | Path] = [
        ENVS / "gguf" / "bin" / "python",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        ":all:",
    ]
    pip += ["--no-build-isolation", "--require-hashes", "-r", requirement, "-d", BUILD]
    run(pip, log, env, "pip download")
    archives = list(BUILD.glob("*.tar.gz"))
    if len(archives) != 1:
        raise BuildError(f"{BUILD}: expected one source distribution, found {len(archives)}; remove the folder")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(BUILD / "unpacked", filter="data")
    (unpacked,) = (BUILD / "unpacked").iterdir()
    unpacked.rename(source)
    return source


def build(uv: Path, threads: int, log: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Build llama.cpp and install llama-cpp-python over it into the environment ``gguf``.

    :param threads: compilers at once.
    :return: what the marker says of it: version of the package, commit of llama.cpp.
    """
    prefix = (ENVS / "gguf").resolve()
    tools = {**env, "PATH": f"{prefix / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"}
    if not (shutil.which("c++") or shutil.which("g++")):
        raise BuildError("no C++ compiler found; llama.cpp needs one (Debian and Ubuntu: the package g++)")
    source = fetch_source(log, tools)
    llama, objects = source / "vendor" / "llama.cpp", BUILD / "objects"
    options = {**OPTIONS, "CMAKE_PROJECT_ggml_INCLUDE": str((LOCKS / "llama-cpp" / "kernels.cmake").resolve())}
    configure: list[str | Path] = [prefix / "bin" / "cmake", "-S", llama, "-B", objects, "-G", "Ninja"]
    configure += [f"-D{key}={value}" for key, value in options.items()]
    say(f"building llama.cpp with {threads} compiler{'s' if threads > 1 else ''} at once")
    run(configure, log, tools, "cmake")
    ninja: list[str | Path] = [prefix / "bin" / "ninja", "-C", objects, "-j", str(threads), "llama-server"]
    run(ninja, log, tools, "llama.cpp", progress=ninja_progress)

    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    shutil.copytree(objects / "bin", HOME / "bin", symlinks=True)
    for name in CONVERTERS:
        copy = shutil.copytree if (llama / name).is_dir() else shutil.copy2
        copy(llama / name, HOME / name)
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--python",
        prefix / "bin" / "python",
        "--no-deps",
        "--no-build-isolation",
    ]
    install += ["--no-cache", "--reinstall-package", PACKAGE, source.resolve()]
    run(install, log, {**tools, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF"}, f"installing {PACKAGE}")
    link_libraries(prefix)
    check: list[str | Path] = [prefix / "bin" / "python", "-c", "import llama_cpp; llama_cpp.llama_backend_init()"]
    run(check, log, env, f"import of {PACKAGE}")
    commit = wrapped_commit((source / "CHANGELOG.md").read_text()) or "unknown"
    shutil.rmtree(BUILD)
    return {"llama.cpp": commit}


def link_libraries(prefix: Path) -> None:
    """Put the libraries where llama-cpp-python looks for its own, as links relative to the environment."""
    (package,) = prefix.glob("lib/python3.*/site-packages/llama_cpp")
    folder = package / "lib"
    folder.mkdir(exist_ok=True)
    for library in (HOME / "bin").glob("lib*.so*"):
        link = folder / library.name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(prefix / "llama.cpp" / "bin" / library.name, folder))
