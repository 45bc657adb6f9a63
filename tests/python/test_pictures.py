"""Pictures of verdicts, diagnoses, traces and errors: what they hold, how large they are, and that they load and run nothing."""
import html.parser
import math
import re

import ml_dtypes
import numpy as np
import pytest

import assay
from assay import _codes, _html, _pictures

kVoid = {"br", "hr", "img"}


class Reader(html.parser.HTMLParser):
    """Elements that open and close, and what they are."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.wrong, self.words = [], [], [], []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in kVoid:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def read(value):
    text = value._repr_html_()
    reader = Reader(text)
    assert len(text.encode()) <= 200_000
    assert not reader.wrong, reader.wrong
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in reader.seen}
    assert not [a for _, attributes in reader.seen for a in attributes if a.startswith("on") or a in ("src", "href")]
    assert "url(" not in text and "prefers-color-scheme:dark" in text and "data-jp-theme-light" in text
    return reader


@pytest.fixture
def floored(x):
    return {n: np.array(a) for n, a in assay.quantize(x, "mxfp8 flavour=ocp").items()}


@pytest.fixture
def flipped(x):
    planes = {n: np.array(a) for n, a in assay.quantize(x, "nvfp4").items()}
    planes["row.data"].view(np.uint8)[3:9, 5:60] ^= 1   # the lowest bit of the first code of each byte
    return planes


def test_verdict(x, floored, flipped):
    words = " ".join(read(assay.check(x, floored, "mxfp8")).words)
    assert "Where" in words and "outputs" in words and "-1" in words
    read(assay.check(x, assay.quantize(x), "mxfp8"))
    verdict = assay.check(x, flipped, "nvfp4")
    tags = [a for tag, a in read(verdict).seen if tag == "path" and re.fullmatch(r"h[1-5]", a.get("class", "")) and a["d"] != "M0 0h1v1h-1z"]   # without the legend
    # 6 rows of 110 columns, in tiles of 1 x 4: the squares of any colour but the first are those that hold the differences.
    area = sum(int(n) for a in tags for n in re.findall(r"M\d+ \d+h(\d+)v1h-\d+z", a["d"]))
    assert area == 6 * len({c // 4 for c in range(10, 120, 2)})


def test_arrays_that_changed_since_are_not_drawn(x, floored):
    verdict = assay.check(x, floored, "mxfp8")
    assert "Where" in " ".join(read(verdict).words)
    floored["row.scale_inv"].view(np.uint8)[:] = 0
    words = " ".join(read(verdict).words)
    assert "have changed since" in words and "Where" not in words


def test_only_what_differs_keeps_arrays(x, floored):
    assert assay.check(x, assay.quantize(x), "mxfp8").case is None and assay.check(x, floored, "mxfp8").case is not None


def test_diagnosis(x, floored):
    found = assay.explain(x, floored, "mxfp8")
    words = " ".join(read(found).words)
    plane = found.facts["planes"][0]
    assert "codes apart" in words and f"{plane['code_distance'][0]['differ']:,}" in words


def test_trace_is_a_chain(x, flipped):
    trace = assay.trace(x, flipped, (3, 10), "nvfp4")
    reader = read(trace)
    boxes = [a["class"] for tag, a in reader.seen if tag == "rect"]
    assert len(boxes) == len(trace.steps) + len(trace.outputs) and boxes.count("box bad-box") == 1
    assert [tag for tag, a in reader.seen if tag == "circle"] == ["circle"] * 3   # the value, the reference, the outputs
    assert "halfway" in reader.words


def test_the_last_rounding_lies_between_its_neighbours(x):
    for row, col in ((0, 0), (3, 10), (63, 255)):
        trace = assay.trace(x, assay.quantize(x), (row, col), "mxfp8")
        value, low, high = _html._neighbours(trace.steps[-2].reference, trace.steps[-1].reference)
        assert low <= value <= high and float(trace.steps[-1].reference["value"]) in (low, high)


def test_codes_in_order():
    every = np.arange(256)
    values = every.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    finite = np.isfinite(values)
    order = _codes.in_order(every, "e4m3")[finite]
    assert (np.diff(values[finite][np.argsort(order, kind="stable")]) >= 0).all()
    known = finite & (np.abs(values) >= 2.0 ** -6)
    assert (_codes.exponents(every, "e4m3")[known] == np.floor(np.log2(np.abs(values[known])))).all()


@pytest.mark.parametrize("spec", ["nvfp4", "mxfp4", "mxfp8"])
def test_codes_of_planes(x, spec):
    from assay._arrays import array_of
    y = x[:, :200] if spec == "mxfp8" else x   # scales with padding
    q, alone = assay.quantize(y, spec), assay.quantize(y, spec, unpacked=True)
    got = _codes.codes_of(array_of(q["row.data"], "row.data"), q.plane("row.data"))
    assert (got == np.asarray(alone["row.data"]).view(np.uint8)).all()
    scales = _codes.codes_of(array_of(q["row.scale_inv"], "scales"), q.plane("row.scale_inv"))
    assert (scales == np.asarray(q.logical("row.scale_inv")).view(np.uint8)).all()


def test_a_picture_has_a_limit():
    part = "<p>" + "x" * 90_000 + "</p>"
    text = _html.frame(part, part, part)
    assert len(text) <= 200_000 and "1 more pictures are left out" in text
    assert len(_html.frame("y" * 300_000)) < 20_000
    noise = np.random.default_rng(1).integers(0, 6, (64, 64)).tolist()
    assert len(_pictures.tile_map(noise, "worst case")) < 80_000


@pytest.mark.parametrize("spec", ["mxfp8", "nvfp4", "mxfp4", "fp8_current", "fp8_block"])
@pytest.mark.parametrize("dir", ["row", "col"])
def test_plot_error(x, spec, dir):
    """Its figures are those that NumPy gives from dequantized planes."""
    right = assay.quantize(x, spec, dir=dir)
    same = assay.plot_error(x, right, spec)
    assert math.isinf(same.kernel_db) and not same.worst and same.outputs_db == same.format_db and same.direction == dir
    planes = {n: np.array(a) for n, a in right.items()}
    codes = planes[f"{dir}.data"].view(np.uint8).reshape(-1)
    codes[::7] ^= ((codes[::7] & 127) < 112).astype(np.uint8)   # which makes no NaN
    found = assay.plot_error(x, planes, spec)
    exact = x.astype(np.float64)
    values = [np.asarray(assay.dequantize(q, f"{spec} dir={dir}", shape=x.shape)).astype(np.float64) for q in (dict(right), planes)]
    energy = lambda e: float((e * e).sum())
    assert found.format_db == pytest.approx(10 * math.log10(energy(exact) / energy(values[0] - exact)))
    assert found.kernel_db == pytest.approx(10 * math.log10(energy(exact) / energy(values[1] - values[0])))
    assert found.binades and sum(b["elements"] for b in found.binades) <= x.size and found.worst
    assert "Where the kernel loses" in " ".join(read(found).words)
    worst = found.worst[0]
    assert worst["outputs"] == values[1][worst["row"], worst["col"]] and worst["reference"] == values[0][worst["row"], worst["col"]]


def test_plot_error_of_planes_that_are_missing_and_of_what_is_not_finite(x):
    q = assay.quantize(x, "nvfp4")
    found = assay.plot_error(x, {"row.data": q["row.data"]}, "nvfp4")
    assert "the reference's" in found.notes[0] and math.isinf(found.kernel_db)
    y = x.copy()
    y[0, 0] = np.inf
    assert assay.plot_error(y, assay.quantize(y), "mxfp8").left_out > 0
    with pytest.raises(assay.PlaneError, match="col.data"):
        assay.plot_error(x, q, "nvfp4", dir="col")
    with pytest.raises(assay.PlaneError, match="quantize"):
        assay.plot_error(x, assay.cast(x), "cast e4m3")
