#!/usr/bin/env python3
"""nvcc behind ccache, PTX included: the launcher of CUDA sources (fast/CMakeLists.txt).

    cached_nvcc.py <ccache> <folder of the clone> <folder for PTX> <nvcc> <arguments with -c, -MD, -MF and -o>

nvcc leaves the PTX of each architecture beside the object file, and ccache keeps one output of a compiler. So ccache is given this script as its compiler: it
compiles in a temporary folder, and its one output is an archive of the object file and the texts. What ccache finds or makes is unpacked here. ccache looks at
the files that the dependency file names, never at preprocessed text, which would be that of one architecture alone. The exit status is nvcc's.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

kInner = "ASSAY_NVCC"   # set: ccache runs this script as the compiler; the variable names nvcc


def option(arguments, name):
    """Where the value of an option stands."""
    return arguments.index(name) + 1


def compile_into_archive(nvcc, arguments):
    """What ccache sees as the compiler: its output is the archive."""
    if "-c" not in arguments:
        os.execv(nvcc, [nvcc, *arguments])   # a question about the compiler
    at = option(arguments, "-o")
    archive = pathlib.Path(arguments[at])
    with tempfile.TemporaryDirectory(prefix="assay_nvcc_") as folder:
        made = pathlib.Path(folder) / "object.o"
        status = subprocess.run([nvcc, *arguments[:at], str(made), *arguments[at + 1:], "--keep", f"--keep-dir={folder}"]).returncode
        if status == 0:
            with tarfile.open(archive, "w") as out:
                for path in [made, *sorted(pathlib.Path(folder).glob("*.ptx"))]:
                    info = tarfile.TarInfo(path.name)   # no time and no owner: the same input gives the same bytes
                    info.size = path.stat().st_size
                    with path.open("rb") as content:
                        out.addfile(info, content)
    return status


def main():
    if nvcc := os.environ.get(kInner):
        return compile_into_archive(nvcc, sys.argv[1:])
    ccache, clone, texts, nvcc, *arguments = sys.argv[1:]
    at = option(arguments, "-o")
    target = pathlib.Path(arguments[at])
    archive = target.with_name(target.name + ".tar")
    version = subprocess.run([nvcc, "--version"], capture_output=True, check=True).stdout + pathlib.Path(__file__).read_bytes()
    env = {**os.environ, kInner: nvcc, "CCACHE_COMPILERTYPE": "nvcc", "CCACHE_COMPILERCHECK": "string:" + hashlib.sha256(version).hexdigest(),
           "CCACHE_DEPEND": "1", "CCACHE_BASEDIR": clone, "CCACHE_NOHASHDIR": "1"}
    arguments[at] = str(archive)
    status = subprocess.run([ccache, str(pathlib.Path(__file__).resolve()), *arguments], env=env).returncode
    if status == 0:
        with tarfile.open(archive) as held:
            for member in held.getmembers():
                to = target if member.name == "object.o" else pathlib.Path(texts) / member.name
                to.write_bytes(held.extractfile(member).read())
    archive.unlink(missing_ok=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
