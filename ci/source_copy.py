"""A copy of the sources below build/, in which a script may break them (ci/faults, ci/mutants)."""
import pathlib
import subprocess

from tally import ROOT


def sync(tree, keep=()):
    """Makes `tree` the sources of this moment; files that are equal keep their time, so builds stay incremental. What `keep` names is left alone, and so is build/."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = {n for n in listed.stdout.decode().split("\0") if n and (ROOT / n).is_file()}
    for old in pathlib.Path(tree).rglob("*"):
        name = str(old.relative_to(tree))
        if old.is_file() and name.split("/")[0] != "build" and name not in names and name not in keep:
            old.unlink()
    for name in names - set(keep):
        write(tree / name, (ROOT / name).read_bytes(), (ROOT / name).stat().st_mode)


def write(target, content, mode=0o644):
    """Writes a file unless it holds the same already."""
    if not target.is_file() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
