"""Renders the pages in a headless Chromium and checks what they show: test_pages.py <build>/bin/assay [--keep FOLDER].

Every page, at 400 and 1200 pixels, light and dark: nothing sticks out sideways, every text has a contrast of at least 4.5 to 1 against what it stands on, nothing is
loaded and nothing could run. The diagnosis pages then: verdict, stages, tiles, bars, the row where the trace parts. On paper everything is dark on white, also where
the screen is dark. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import chromium

# The least contrast of any visible text: [ratio, text]. Grounds that are not opaque are mixed with what lies behind them.
kContrast = """(() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = c => { const f = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const ground = e => { const c = parse(getComputedStyle(e).backgroundColor); return c[3] === 1 ? c : over(c, e.parentElement ? ground(e.parentElement) : [255, 255, 255, 1]); };
  let worst = [99, 'no text'];
  const seen = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const e = node.parentElement;
    if (!node.data.trim() || e.closest('svg') || seen.has(e) || !e.getClientRects().length) continue;
    seen.add(e);
    const back = ground(e), a = light(over(parse(getComputedStyle(e).color), back)), b = light(back), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.data.trim().slice(0, 60)];
  }
  return worst;
})()"""
# What sticks out, in pixels, and what does.
kOverflow = """(() => {
  const over = document.documentElement.scrollWidth - innerWidth;
  const who = over > 0 ? [...document.querySelectorAll('main *')].find(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 0.5) : null;
  return [over, who ? who.outerHTML.slice(0, 120) : ''];
})()"""
# Elements that could load or run something.
kForeign = "[...document.querySelectorAll('script,img,iframe,object,embed,link,base,form,[src],[href]:not([href^=\"#\"]),[style*=url],[onerror],[onload],[onclick]')].map(e => e.outerHTML.slice(0, 80))"


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, holds, what):
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)
        if not holds:
            print(f"FAILED  {what}")

    def equal(self, got, want, what):
        self.check(got == want, f"{what}: expected {want!r}, found {got!r}")


def texts(page, selector):
    return page.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText.replace(/\\s+/g, ' ').trim())")


def check_any(page, name, url, checks):
    """What holds for every page."""
    page.open(url)
    checks.equal(page.requests, [url], f"{name}: what was loaded")
    checks.equal(page.evaluate(kForeign), [], f"{name}: elements that load or run something")
    checks.equal(page.evaluate("document.querySelectorAll('h1').length"), 1, f"{name}: h1")
    checks.equal(page.evaluate("[...document.querySelectorAll('thead th')].filter(e => e.innerText.trim() && !e.scope).length"), 0, f"{name}: heads of columns without a scope")
    for dark in (False, True):
        for width in (400, 1200):
            page.view(width, dark=dark)
            at = f"{name}, {width} pixels, {'dark' if dark else 'light'}"
            over, who = page.evaluate(kOverflow)
            checks.check(over <= 0, f"{at}: sticks out by {over} pixels: {who}")
            ratio, text = page.evaluate(kContrast)
            checks.check(ratio >= 4.5, f"{at}: contrast {ratio:.2f} of '{text}'")
    # On paper: the scheme of the screen is not asked.
    page.view(760, dark=True, media="print")
    checks.equal(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", f"{name}, on paper: ground")
    ratio, text = page.evaluate(kContrast)
    checks.check(ratio >= 4.5, f"{name}, on paper: contrast {ratio:.2f} of '{text}'")
    page.view(1200)


def check_certain(page, checks):
    checks.equal(texts(page, "h1"), ["E8M0 scale from the floored exponent"], "verdict")
    checks.equal(texts(page, ".badge"), ["certain"], "how sure")
    checks.equal(texts(page, "h2"), ["Stages", "Where", "How", "Causes", "The first element that differs", "See it again", "The machine"], "sections")
    checks.equal(len(texts(page, ".stages li")), 18, "stages of both directions")
    checks.equal(texts(page, ".stages .differs"), ["block scale ≠ differs 509 of 512"], "the stage that differs")
    checks.equal(texts(page, ".stages .follows .state"), ["↳ follows"], "the stage that follows")
    top = page.evaluate("[...document.querySelector('.stages').children].map(e => e.getBoundingClientRect().top)")
    checks.equal(len(set(top)), 1, "rows that the stages of one direction take at 1200 pixels")
    # Tiles: as many as there are, each seen, coloured by its share.
    tiles = page.evaluate("[...document.querySelectorAll('svg.heat rect')].map(e => { const r = e.getBoundingClientRect(); return [r.width > 4 && r.height > 4, getComputedStyle(e).fill, e.textContent]; })")
    checks.equal(len(tiles), 64, "tiles")
    checks.check(all(seen for seen, _, _ in tiles), "a tile is not seen")
    checks.equal(len({fill for _, fill, _ in tiles}), 3, "colours of the map: all, half and more, none")
    checks.equal(tiles[12][2], "rows 8–15, columns 128–159: 7 of 8", "title of a tile")
    legend = page.evaluate("[...document.querySelectorAll('.legend rect')].map(e => getComputedStyle(e).fill)")
    checks.equal(len(set(legend)), 6, "colours of the legend")
    checks.check({fill for _, fill, _ in tiles} <= set(legend), "the map has a colour that the legend lacks")
    # Bars are as long as their counts.
    bars = page.evaluate("[...document.querySelectorAll('.histogram')].map(t => [...t.querySelectorAll('tbody tr')].map(r => [r.querySelector('.bar').getBoundingClientRect().width, parseInt(r.lastElementChild.innerText.replace(/,/g, ''))]))")
    checks.equal([len(b) for b in bars], [1, 4, 5, 5, 4], "buckets of the histograms")
    for histogram in bars[:4]:
        longest = max(width for width, _ in histogram)
        most = max(count for _, count in histogram)
        checks.check(all(abs(width - max(1, longest * count / most)) < 1.5 for width, count in histogram), f"bars that are not as long as their counts: {histogram}")
    shares = [a / b for a, b in ((12, 14), (1930, 1951), (4010, 4040), (10296, 10379))]
    longest = max(width for width, _ in bars[4])
    checks.check(all(abs(width - longest * share / max(shares)) < 1.5 for (width, _), share in zip(bars[4], shares)), f"bars that are not as long as their shares: {bars[4]}")
    checks.equal(texts(page, ".causes tbody:nth-of-type(1) td:first-child p"), ["E8M0 scale from the floored exponent"], "exact causes")
    checks.equal(len(texts(page, ".causes tbody:nth-of-type(2) td:first-child p")), 2, "runners-up")
    checks.equal(texts(page, ".trace .parts"), ["→ parts here N5.3 scale, a power of two 78 2^-7 77 2^-8"], "where the trace parts")
    checks.equal(page.evaluate("getComputedStyle(document.querySelector('pre code')).userSelect"), "all", "one click selects a command")
    page.view(1200, dark=True)
    dark = page.evaluate("[...document.querySelectorAll('.legend rect')].map(e => getComputedStyle(e).fill)")
    checks.equal(len(set(dark)), 6, "colours of the dark legend")
    for fills, sign in ((legend, -1), (dark, 1)):   # more is darker on white and brighter on black, so that the map needs no colours
        sums = [sign * sum(int(n) * w for n, w in zip(fill[4:-1].split(","), (2, 7, 1))) for fill in fills]
        checks.equal(sums, sorted(sums), f"{'dark' if sign > 0 else 'light'} map: order of brightness")
    page.view(1200)


def check_others(page, folder, checks):
    for name, verdict, badge in (("partial", "In part: E8M0 scale from the floored exponent", "partial"), ("unexplained", "Unexplained, and first seen in the block scale", "unexplained"),
                                 ("random", "Two runs on the same input differ", "not repeatable"), ("equal", "Nothing differs", "equal")):
        page.open(f"file://{folder}/{name}.html")
        checks.equal((texts(page, "h1"), texts(page, ".badge")), ([verdict], [badge]), name)
    page.open(f"file://{folder}/large.html")
    checks.equal(page.evaluate("document.querySelectorAll('svg.heat rect').length"), 4096, "tiles of the largest map")
    page.open(f"file://{folder}/hostile.html")
    checks.equal(page.evaluate("document.querySelectorAll('script,img,title').length - document.querySelectorAll('svg title').length"), 1, "elements of a hostile diagnosis")
    checks.check("<script>alert(1)</script>" in texts(page, "h1")[0], "a hostile title is shown as it is")


def break_scales(path):
    """Lowers every E8M0 scale in a pack by one."""
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    name = next(n for n in header if n.endswith("row.scale_inv"))
    begin, end = header[name]["data_offsets"]
    for at in range(8 + size + begin, 8 + size + end):
        data[at] -= data[at] > 0          # padding stays 0
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="leave the pages and pictures of them here")
    args = parser.parse_args()
    browser = chromium.find()
    if browser is None:
        print("no chromium on this machine: apt-get install chromium brings one\n0 passed, 0 failed, 1 skipped")
        sys.exit(3)
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="assay_pages_") as scratch:
        folder = (args.keep or pathlib.Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([args.program.with_name("diagnosis_pages"), folder], check=True)
        # Pages as the program makes them.
        subprocess.run([args.program, "run", "roles", "--filter", "parity linear fp8_block", "--html", folder / "parity.html"], check=True, stdout=subprocess.DEVNULL)
        pack = folder / "broken.safetensors"
        subprocess.run([args.program, "record", "quantize mxfp8 64x256 bf16", "--subject", "reference", "--all-bytes", "-o", pack], check=True, stdout=subprocess.DEVNULL)
        break_scales(pack)
        done = subprocess.run([args.program, "explain", pack, "--html", folder / "explained.html"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        checks.equal(done.returncode, 1, f"exit status of explain:\n{done.stdout}")
        with chromium.Browser(browser) as page:
            for path in sorted(folder.glob("*.html")):
                check_any(page, path.stem, path.as_uri(), checks)
                if args.keep:
                    for kind, options in {"light": {}, "dark": {"dark": True}, "narrow": {"width": 400}}.items():
                        page.view(**{"width": 1200, **options})
                        page.screenshot(path.with_name(f"{path.stem}_{kind}.png"))
                    page.pdf(path.with_suffix(".pdf"), dark=True)
                    page.view(1200)
            page.open(f"file://{folder}/certain.html")
            check_certain(page, checks)
            check_others(page, folder, checks)
            page.open(f"file://{folder}/parity.html")
            checks.check(texts(page, ".matrix td.good"), "parity: no field is bitwise")
            page.view(width=1280)   # a laptop's
            checks.check(page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.matrix').parentElement)"), "parity: columns are cut off at 1280 pixels")
            checks.equal(page.evaluate("[...document.querySelectorAll('.matrix a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"), 0, "parity: fields that lead nowhere")
            page.view(1200)
            if (folder / "explained.html").exists():
                page.open(f"file://{folder}/explained.html")
                checks.check("block scale" in texts(page, ".stages .differs .name"), "explained: the block scale is not said to differ")
                checks.check(texts(page, ".badge")[0].startswith("certain"), f"explained: {texts(page, '.badge')}")
                checks.check(page.evaluate("document.querySelectorAll('svg.heat rect').length") > 0, "explained: no heat map")
                checks.equal(len(texts(page, ".trace .parts")), 1, "explained: rows where the trace parts")
    print(f"{checks.passed} passed, {checks.failed} failed, 0 skipped")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
