"""The pytest plugin and the Hypothesis strategies, in test sessions of their own."""
import json
import pathlib

import pytest

import assay

kLoaded = any(e.value == "assay.pytest_plugin" for e in __import__("importlib.metadata").metadata.entry_points(group="pytest11"))
kTest = """
import pytest, assay
x = assay.fill((64, 256), "normal", 3)
bad = assay.quantize(x, "mxfp8 mx_scale=floor")
outputs = {n: bad[n] for n in bad}

def test_equal():
    assay.assert_quantized(x, assay.quantize(x, "mxfp8"))

@pytest.mark.assay("mxfp8")
def test_fails(assay_oracle):
    assay_oracle.assert_quantized(x, outputs)

@pytest.mark.assay("mxfp8 mx_scale=floor")
def test_passes(assay_oracle):
    assay_oracle.assert_quantized(x, outputs)
    assert assay_oracle.quantize(x).line == bad.line

def test_fails_too():
    assay.assert_quantized(x, outputs, "mxfp8")

def test_compares():
    assert assay.check(x, outputs, "mxfp8") == True
"""


@pytest.fixture
def session(pytester, monkeypatch):
    for name in ("CI", "BUILD_NUMBER"):   # where pytest sees one of them, its summary repeats every message whole
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(kTest)
    plugin = [] if kLoaded else ["-p", "assay.pytest_plugin"]
    return lambda *options: pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *plugin, *options)


def test_marker_and_text(session):
    result = session()
    result.assert_outcomes(passed=2, failed=3)
    text = result.stdout.str()
    assert text.count("floored exponent of the amax (OCP) (N17.6)") >= 2 and "quantized tensors differ: row.scale_inv (e8m0)" in text
    assert "the verdict is False" in text and "FAILED  outputs" in text
    assert "assay.QuantizedMismatch: " in text and "_judge.py" not in text   # the test's line, not the package's


def test_explain_never_and_first(session):
    assert "floored exponent" not in session("--assay-explain=never").stdout.str()
    text = session("--assay-explain=first", "-k", "equal or fails").stdout.str()   # what passes before is no first failure
    assert text.count("because  ") == 1


def test_dump_writes_packs(session, tmp_path):
    report = tmp_path / "report.xml"
    result = session(f"--assay-dump={tmp_path / 'packs'}", f"--junitxml={report}", "-k", "fails")
    packs = sorted((tmp_path / "packs").glob("*.safetensors"))
    assert len(packs) == 2 and "assay explain" in result.stdout.str()
    assert report.read_text().count('name="assay_pack"') == 2
    for pack in packs:
        case, = assay.load(pack)
        assert not case.check() and case.line.startswith("quantize mxfp8 64x256 bf16")


def test_unknown_choice_is_refused(session):
    assert session("--assay-explain=sometimes").ret == pytest.ExitCode.USAGE_ERROR


hypothesis = pytest.importorskip("hypothesis")


def test_strategies():
    import assay.hypothesis as strategies
    seen = {"lines": 0, "tails": set()}

    @hypothesis.settings(max_examples=40, deadline=None, database=None)
    @hypothesis.given(strategies.lines())
    def lines(text):
        seen["lines"] += 1
        assert assay.check(assay.fill(text), assay.run(text, {"x": assay.fill(text)}), text)

    @hypothesis.settings(max_examples=30, deadline=None, database=None)
    @hypothesis.given(strategies.arrays(shape=strategies.shapes(multiple_of=16, most=64)))
    def arrays(x):
        seen["tails"].add((x.shape[0] % 16, x.shape[1] % 16))
        assert assay.check(x, assay.quantize(x, "nvfp4"))
    lines()
    arrays()
    assert seen["lines"] >= 40 and seen["tails"] == {(0, 0)}


def test_failing_example_prints_its_line(pytester):
    pytester.makepyfile("""
import hypothesis, assay
import assay.hypothesis as strategies

@hypothesis.settings(max_examples=200, deadline=None, database=None)
@hypothesis.given(strategies.sparse_arrays(shape=(4, 32)))
def test_kernel(x):
    assay.assert_quantized(x, dict(assay.quantize(x, "mxfp8 mx_scale=floor")), "mxfp8", explain=False)
""")
    text = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--assay-dump=packs", *([] if kLoaded else ["-p", "assay.pytest_plugin"])).stdout.str()
    line = next(t for t in text.splitlines() if "assay: quantize <format> 4x32 bf16 fill=literal:" in t).partition("assay: ")[2]
    said = line.replace("<format>", "mxfp8").strip(" |+")
    x = assay.fill(said)
    assert (x.astype("float32") != 0).sum() == 1      # shrunk to one element that is not zero
    pack, = pathlib.Path("packs").iterdir()           # of that example, not one for each that was tried
    assert (assay.load(pack)[0]["x"].astype("float32") != 0).sum() == 1
    assert not assay.check(x, dict(assay.quantize(x, "mxfp8 mx_scale=floor")), "mxfp8")


def test_packs_of_a_dump(tmp_path, x):
    pack = assay.Pack(made_by="a test")
    q = assay.quantize(x)
    pack.add_planes(q.line, {"x": x, **{n: q[n] for n in q}}, step=3, module="head", role="input")
    wrong = assay.quantize(x, "mxfp8 mx_scale=floor")
    pack.add_planes(q.line, {"x": x, **{n: wrong[n] for n in wrong}}, step=12, module="head", role="input")
    cases = assay.load(pack.write(tmp_path / "step.safetensors"))
    assert [bool(c.check()) for c in cases] == [True, False]
    assert cases[0]["row.data"].shape == (64, 256) and cases[0].id == "step3/head/input"
    with pytest.raises(assay.AssayError, match="does not exist"):
        assay.load(tmp_path / "nothing.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(assay.AssayError):
        assay.load(tmp_path / "broken.safetensors")
    with pytest.raises(assay.PackError):
        pack.add(object(), x, module="other")


def test_json_of_a_verdict(x):
    facts = assay.check(x, assay.quantize(x)).to_dict()
    assert json.loads(json.dumps(facts))["ok"] is True and pathlib.Path(assay.__file__).with_name("py.typed").is_file()
