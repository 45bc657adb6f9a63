"""What `assay check` would refuse of a case, said when it is dumped: its line, the names of its planes, their counts and dtypes. Needs the standard library alone."""
import re

from ._dump_lines import LineFacts, nearest
from ._dump_planes import kPlanesOfOp, kSmallElements, of_records
from ._dump_rules import fault_of
from ._dump_tables import kEncodings
from ._errors import PackError


def bits_of_word(word):
    return 8 if word == "BOOL" else int(re.search(r"\d+", word)[0])


def check_plane(where, plane, array, encoding, counts):
    bits, word, _ = kEncodings[encoding]
    array.as_code(encoding, f"{where}: {plane}")
    small = encoding in kSmallElements
    narrow = re.match(r"float([46])_", array.name)
    if narrow and int(narrow[1]) != kSmallElements.get(encoding):
        raise PackError(f"{where}: {plane}: expected {encoding}, found {array.name}: a tensor of {narrow[1]}-bit codes is no plane of {encoding}")
    if bits_of_word(array.dtype) != (8 if small else bits) or (array.dtype != word and array.dtype[0] not in "UI" and not (small and array.dtype == "U8")):
        said = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}.get(array.name) if plane == "x" else None
        cure = f": the line's word {encoding} is not that of this tensor; write {said} there, or pass the tensor that the kernel read" if said else ""
        raise PackError(f"{where}: {plane}: expected {word if not small else 'U8'} or an integer of its width, found {array.name}{cure}")
    if array.count not in counts:
        either = " or ".join(str(n) for n in sorted(counts))
        raise PackError(f"{where}: {plane}: expected {either} elements, found {array.count} of shape {list(array.shape)}; pass the tensor that the line describes")


def check_case(line, planes, where):
    """Raises PackError for a line, or for planes ({name: Array}), that `assay check` would refuse or leave unjudged."""
    facts = LineFacts(line, where)
    if fault := fault_of(facts):
        raise PackError(f"{where}: {fault}; the line is '{line}'")
    inputs, outputs = of_records(facts, planes) if "row.record" in planes else kPlanesOfOp[facts.op](facts)
    if not outputs:
        raise PackError(f"{where}: row.record: expected a line of E4M3 codes in blocks of 1x128 in rows (quantize fp8_block <tokens>x512 bf16 dir=row), found '{line}'")
    known = {**inputs, **outputs}
    for plane, array in planes.items():
        if plane not in known:
            raise PackError(f"{where}: expected a plane of the line ({', '.join(known)}), found '{plane}'{nearest(plane, known)}")
        check_plane(where, plane, array, *known[plane])
    if not any(plane in outputs for plane in planes):
        raise PackError(f"{where}: expected a plane that can be judged ({', '.join(outputs)}), found {', '.join(planes)} alone")
