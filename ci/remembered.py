"""Digests of what was found right, in a file below build/, so that a script need not look at it again."""
import hashlib
import json


def digest(*parts):
    """Of texts in order."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()


class Remembered:
    def __init__(self, path):
        self.path = path
        try:
            self.digests = set(json.loads(path.read_text()))
        except (OSError, ValueError):   # no file yet, or one that was cut short
            self.digests = set()

    def __contains__(self, one):
        return one in self.digests

    def add(self, *more):
        """Writes the file at once or not at all: a run that is killed loses nothing that it knew."""
        if self.digests.issuperset(more):
            return
        self.digests.update(more)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self.path.with_suffix(".new")
        other.write_text(json.dumps(sorted(self.digests)))
        other.replace(self.path)
