"""How the C++ and CUDA sources are laid out: by .clang-format, for one version of clang-format."""
import pathlib
import re
import shutil
import subprocess
import sys

import remembered

kSuffixes = {".h", ".cpp", ".cu", ".cuh", ".c"}
kVersion = 14   # another version lays out differently


def clang_format():
    """The program of the right version; None where there is none."""
    for name in (f"clang-format-{kVersion}", "clang-format"):
        if program := shutil.which(name):
            said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {kVersion}\.", said):
                return program
    return None


def key(root, name, text):
    """What the layout of a file depends on."""
    return remembered.digest((root / ".clang-format").read_text(), name, text)


def sources(root):
    """The files that are formatted: those that git knows or would add, without the samples of ci/check."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True)
    names = sorted(set(done.stdout.decode().split("\0")) - {""})
    return [n for n in names if pathlib.PurePath(n).suffix in kSuffixes and not n.startswith("ci/samples/") and (root / n).is_file()]


def formatted(program, root, name, text):
    """`text` as the layout wants it where it stands in the file `name`. Where clang-format wants its own result otherwise, it is asked again."""
    for _ in range(4):
        done = subprocess.run([program, f"--assume-filename={root / name}", "--style=file"], input=text, capture_output=True, text=True, cwd=root)
        if done.returncode != 0:
            sys.exit(f"clang-format failed on {name}:\n{done.stderr}")
        if done.stdout == text:
            return text
        text = done.stdout
    sys.exit(f"clang-format does not come to an end on {name}: mark the place with // clang-format off")
