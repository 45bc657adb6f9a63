"""Digests of what was found right, in a file below build/, so that a script need not look at it again."""
import fcntl
import hashlib
import json
import os


def digest(*parts):
    """Of texts in order."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()


def write_whole(path, text):
    """Writes a file at once or not at all: a run that is killed leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def read_json(path, otherwise):
    """What a file holds, or `otherwise` where there is no file yet, or one that was cut short."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return otherwise


class Counter:
    """A committed file of JSON with a row of numbers for each name, which runs add to. `empty`: the row of a name that nothing was added to."""

    def __init__(self, path, names, empty):
        self.path, self.rows = path, {**{name: dict(empty) for name in names}, **read_json(path, {})}

    def add(self, name, **more):
        """Adds to a row, and writes the file in one step. Another run may add to it at the same time."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self.rows = {**self.rows, **read_json(self.path, {})}
            for key, value in more.items():
                self.rows[name][key] = round(self.rows[name][key] + value, 4)
            write_whole(self.path, "{\n" + ",\n".join(f'  "{n}": {json.dumps(row)}' for n, row in self.rows.items()) + "\n}\n")
        finally:
            os.close(folder)


class Remembered:
    def __init__(self, path):
        self.path, self.digests = path, set(read_json(path, []))

    def __contains__(self, one):
        return one in self.digests

    def add(self, *more):
        if self.digests.issuperset(more):
            return
        self.digests.update(more)
        write_whole(self.path, json.dumps(sorted(self.digests)))
