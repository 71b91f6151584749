#!/usr/bin/env python3
"""The page of `crimp report` in a browser: every section is drawn, and nothing complains. report_page_test.py CRIMP
Exit status: 0 passed, 77 skipped, 1 failed."""
import copy, html, json, os, re, shutil, subprocess, sys, tempfile

from made_reports import base, control, nasty, nasty_names, trace

browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
if not browser:
    print("report_page_test.py: skipped: no chromium")
    sys.exit(77)
crimp = os.path.abspath(sys.argv[1])
sections = ["job", "headline", "advice", "time", "step", "over_time", "heat", "ranks", "sizes", "codecs", "tensors", "plans", "control", "passed", "settings", "missing"]
full = copy.deepcopy(base)
full["per_rank"][0]["control"] = control
full["per_rank"][0]["horovod"] = {"merge": {"search": {"steps": 9, "trace": trace, "chosen": {"holds": True, "cuts": [2]}, "tried": []}}}
nasty_names(full)
old = copy.deepcopy(base)
for key in ("timeline", "job"):
    del old[key]
del old["per_rank"][0]["tensors"]


def drawn(page, *options):
    """The document as scripts have left it, and what the browser's console said."""
    # Headless, without what a browser does of itself: no network is needed.
    line = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
            f"--user-data-dir={os.path.abspath('profile')}", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", *options]
    done = subprocess.run([*line, "--dump-dom", "file://" + os.path.abspath(page)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    said = [l for l in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in l]
    return done.stdout.decode(), said


with tempfile.TemporaryDirectory(prefix="crimp-page-") as scratch:
    os.chdir(scratch)
    for name, report in (("full", full), ("old", old), ("empty", {"per_rank": [{}]})):
        with open(f"{name}.json", "w") as to:
            json.dump(report, to)
    with open("fails.html", "w") as to:
        to.write("<script>nowhere();</script>")
    _, said = drawn("fails.html")
    if not said:  # it starts nothing here, or says nothing: then nothing would be seen below either
        print(f"report_page_test.py: skipped: {browser} does not run headless here")
        sys.exit(77)
    for names, options in ((["full"], ()), (["full"], ("--blink-settings=preferredColorScheme=0", "--window-size=380,800")), (["old"], ()), (["empty"], ()), (["full", "old"], ())):
        subprocess.run([crimp, "report", *(f"{n}.json" for n in names), "-o", "page.html"], check=True)
        document, said = drawn("page.html", *options)
        assert not said, said
        for section in sections + (["comparison"] if len(names) > 1 else []):
            assert re.search(f'<section id="{section}">', document), (names, section)
        body = document[: document.index('<script type="application/json"')]
        assert "NaN" not in body and "undefined" not in body and "Infinity" not in body, names
        assert document.count("<script") == 2, names
        if names == ["full"]:
            assert body.count("<svg") > 10 and html.escape(nasty, quote=False) in body
            assert len(re.findall(r'<rect class="h\d"', body)) >= 3 and "Nothing to show" not in body
        if names == ["old"]:
            assert "kept no timeline" in body
print("report_page_test.py: passed")
