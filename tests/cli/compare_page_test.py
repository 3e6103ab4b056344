#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `spillway lab compare` in a real browser: it renders, has its plots and logs no error.

    tests/cli/compare_page_test.py PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
WORKER = pathlib.Path(__file__).resolve().parent / "compare_worker.py"
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SKIPPED = 77
# All that need no optional kernel feature, so that the page is as wide as possible.
TRANSPORTS = ("tcp", "tcp-fp16", "tcp-powersgd", "spillway-exact", "spillway-16", "spillway", "spillway-over-tcp")

# Writes the browser's measurements of the page into it.
MEASURE = """<script>
addEventListener("load", () => {
  const box = element => { const b = element.getBBox(); return [b.width, b.height]; };
  const facts = {
    charts: [...document.querySelectorAll("figure")].map(figure => ({
      id: figure.id,
      width: figure.querySelector("svg").getBoundingClientRect().width,
      lines: [...figure.querySelectorAll("polyline")].map(line => ({
        points: line.points.numberOfItems, length: line.getTotalLength(), box: box(line),
        colour: getComputedStyle(line).stroke, dashes: getComputedStyle(line).strokeDasharray})),
      outside: [...figure.querySelectorAll("text, polyline")].filter(element => {
        const a = element.getBoundingClientRect(), b = figure.querySelector("svg").getBoundingClientRect();
        return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
      }).map(element => element.textContent)})),
    bars: document.querySelectorAll("#overview rect").length,
    rows: document.querySelectorAll("tbody tr").length,
    overflow: document.documentElement.scrollWidth - innerWidth,
    requests: performance.getEntriesByType("resource").map(entry => entry.name)};
  const note = document.createElement("pre");
  note.id = "facts";
  note.textContent = JSON.stringify(facts);
  document.body.append(note);
});
</script>"""


def browse(page, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        return run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                    f"--user-data-dir={profile}", "--enable-logging=stderr", "--hide-scrollbars", *arguments,
                    page.as_uri()])


def console_lines(errors):
    return [line for line in errors.splitlines() if ":CONSOLE" in line]


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        result = run([TOOL, "lab", "compare", "--preset", "incast", "--hosts", "3", "--rate", "100mbit", "--allow-late",
                      "--out", cls.folder, "--transports", ",".join(TRANSPORTS), "--", PYTHON, WORKER, "{backend}", "{transport}",
                      "{log}", "40"], quiet_seconds=150, env=environment)
        if result.returncode != 0:
            raise RuntimeError(result.stderr)
        cls.page = cls.folder / "report.html"
        cls.addClassCleanup(cls.keep_page)

    @classmethod
    def keep_page(cls):
        """Copies the page to a folder for inspection."""
        keep = os.environ.get("COMPARE_PAGE_KEEP")
        if keep:
            shutil.copytree(cls.folder, keep, dirs_exist_ok=True)

    def facts(self, *arguments):
        measured = self.folder / "measured.html"
        measured.write_text(self.page.read_text().replace("</head>", MEASURE + "</head>"))
        result = browse(measured, "--dump-dom", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(console_lines(result.stderr), [])
        found = re.search(r'<pre id="facts">(.*?)</pre>', result.stdout, re.DOTALL)
        self.assertTrue(found, result.stdout[-2000:])
        return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))

    def test_all_plots_are_drawn(self):
        facts = self.facts("--window-size=1200,3000")
        self.assertEqual([chart["id"] for chart in facts["charts"]], ["accuracy", "steps", "queue", "trim", "loss"])
        self.assertEqual(facts["bars"], len(TRANSPORTS))
        for chart in facts["charts"]:
            self.assertGreater(chart["width"], 600, chart["id"])
            self.assertEqual(len(chart["lines"]), len(TRANSPORTS), chart["id"])
            self.assertEqual(chart["outside"], [], chart["id"])
            for line in chart["lines"]:
                self.assertGreaterEqual(line["points"], 2, chart["id"])
                self.assertGreater(line["length"], 20, chart["id"])
            self.assertEqual(len({line["colour"] for line in chart["lines"]}), len(TRANSPORTS))
            self.assertEqual(len({line["dashes"] for line in chart["lines"]}), len(TRANSPORTS))
        for chart in facts["charts"][:2]:  # these rise whatever the network does
            for line in chart["lines"]:
                self.assertGreater(min(line["box"]), 50, chart["id"])
        self.assertEqual(facts["rows"], 13 + len(TRANSPORTS) - 1)  # metrics, and the shares of the gain
        self.check_needs_nothing_and_fits(facts)

    def check_needs_nothing_and_fits(self, facts):
        self.assertEqual(facts["requests"], [])
        self.assertLessEqual(facts["overflow"], 0)

    def test_it_fits_a_narrow_window(self):
        self.check_needs_nothing_and_fits(self.facts("--window-size=500,1000"))

    def test_it_is_painted_without_errors(self):
        picture = self.folder / "page.png"
        result = browse(self.page, f"--screenshot={picture}", "--window-size=1200,3200")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(console_lines(result.stderr), [])
        self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(picture.stat().st_size, 50_000)  # an empty page has a tenth of this

    def test_the_measurement_would_see_an_error(self):
        broken = self.folder / "broken.html"
        broken.write_text(self.page.read_text().replace("</head>", "<script>nothing.at.all</script></head>"))
        self.assertNotEqual(console_lines(browse(broken, "--dump-dom").stderr), [])


if __name__ == "__main__":
    if BROWSER is None:
        print("no chromium here: skipped")
        sys.exit(SKIPPED)
    unittest.main()
