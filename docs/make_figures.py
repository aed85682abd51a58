"""Make the pictures and the first table of the README and the documentation.

    python docs/make_figures.py

Pictures go into ``docs/_static``. The table of ``examples/before_after.py`` goes between two marks
in the README and on the first page of the documentation. ``docs/_static/made_from.json`` keeps a
digest of the code behind each of them, and a test finds those that are older than their code.

The pictures of the HTML table need ``chromium`` on the path; without it they are left as they are.
"""

import ast
import hashlib
import json
import re
import runpy
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
STATIC = HERE / "_static"
MADE_FROM = STATIC / "made_from.json"
DISPLAY = ("src/az_cv/display/cells.py", "src/az_cv/display/footer.py", "src/az_cv/display/html.py")
PLOTS = ("src/az_cv/plots/canvas.py", "src/az_cv/plots/rows.py", "src/az_cv/display/digits.py")
# What each picture is drawn by, itself aside.
SOURCES = {
    "table_light.png": DISPLAY,
    "table_dark.png": DISPLAY,
    "table_phone_light.png": DISPLAY,
    "table_phone_dark.png": DISPLAY,
    "structure.png": (*PLOTS, "src/az_cv/plots/structure.py"),
    "running.png": (*PLOTS, "src/az_cv/plots/running.py"),
    "running_phone.png": (*PLOTS, "src/az_cv/plots/running.py"),
    "one_dimension.png": ("docs/one_dimension.py",),
    "one_dimension_phone.png": ("docs/one_dimension.py",),
    "coverage.png": ("docs/coverage_plot.py",),
    "before_after": ("examples/before_after.py", "src/az_cv/display/digits.py"),
}
TABLE_PAGES = (ROOT / "README.md", HERE / "index.md")
MARKED = re.compile(r"(<!-- before_after -->\n).*?(<!-- end -->)", re.DOTALL)
PAGES = {"light": ("#ffffff", "#1b1f24"), "dark": ("#131416", "#e6e6e6")}
# Pixels of the text on a phone; browsers make no window that is so narrow.
PHONE = 368
WINDOW = (500, 700)
# Inches of figures for phones, which have two pixels for each that is shown.
NARROW = {"figure.figsize": (4.6, 3.4)}
SHARP = 220


def digest(names) -> str:
    """Return a digest of code; docstrings, lines of comment and empty lines do not count."""
    texts = []
    for name in names:
        source = (ROOT / name).read_text(encoding="utf-8")
        spoken = set()
        for node in ast.walk(ast.parse(source)):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                spoken |= set(range(first.lineno, first.end_lineno + 1))
        # The text itself: what Python writes for a syntax tree differs from version to version.
        lines = [line.strip() for k, line in enumerate(source.splitlines(), 1) if k not in spoken]
        texts += [line for line in lines if line and not line.startswith("#")]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def put_table(lines) -> None:
    """Put the table of before and after into the pages that show it."""
    table = "\n".join(lines) + "\n"
    for page in TABLE_PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(MARKED.sub(lambda m: m[1] + table + m[2], text), encoding="utf-8")
        print(page)


def photograph(
    html: str, output: Path, background: str, colour: str, *, phone: bool = False
) -> None:
    """Take a picture of an HTML fragment in a browser, as it looks on a desk or on a phone."""
    browser = shutil.which("chromium")
    if browser is None:
        print(f"{output} is left as it is: there is no chromium")
        return
    place = f"margin:0;width:{PHONE}px" if phone else "margin:12px"
    style = f"background:{background};color:{colour};font-family:Helvetica,Arial,sans-serif;{place}"
    scale, window = (2, WINDOW) if phone else (1, (1056, 370))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(
            f"<!doctype html><meta charset='utf-8'><body style='{style}'>{html}</body>",
            encoding="utf-8",
        )
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--window-size={window[0]},{window[1]}",
                f"--force-device-scale-factor={scale}",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={output}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    if phone:
        cut(output, scale * PHONE)
    print(output)


def cut(picture: Path, width: int) -> None:
    """Cut a picture to a width, and off below its last row that is not empty."""
    import numpy as np
    from PIL import Image

    with Image.open(picture) as image:
        left = image.convert("RGB").crop((0, 0, width, image.height))
    pixels = np.asarray(left)
    used = np.nonzero((pixels != pixels[-1, -1]).any(axis=(1, 2)))[0]
    left.crop((0, 0, width, int(used[-1]) + 9)).quantize(128).save(picture, optimize=True)


def draw_running(data):
    """Return the figure of running means, with the exact values."""
    import az_cv
    from az_cv.datasets import EIGHT_SCHOOLS_MEANS
    from az_cv.plots.canvas import panel_legend

    panels = az_cv.plots.plot_running(data, var_names=["mu", "tau"])
    for panel, name in zip(panels, ("mu", "tau")):
        panel.axhline(EIGHT_SCHOOLS_MEANS[name], color="#c8441b", linewidth=1, label="exact")
    panels[0].figure.legends[0].remove()
    panel_legend(panels, outside=True)
    return panels[0].figure


def main() -> None:
    import matplotlib

    import az_cv
    from az_cv.display.html import summary_html

    matplotlib.use("agg")
    put_table(runpy.run_path(str(ROOT / "examples" / "before_after.py"))["table"]())
    data = az_cv.load_eight_schools()
    az_cv.clear_cache()  # the seconds under the table are those of a first call
    table = az_cv.summary(data)
    html = summary_html(table)
    short = summary_html(table[["mean", "mcse_mean", "vrf_mean"]])
    for mode, colours in PAGES.items():
        photograph(html, STATIC / f"table_{mode}.png", *colours)
        photograph(short, STATIC / f"table_phone_{mode}.png", *colours, phone=True)
    one_dimension, coverage = (
        runpy.run_path(str(HERE / f"{name}.py"))["draw"]
        for name in ("one_dimension", "coverage_plot")
    )
    figures = {"running.png": draw_running(data), "one_dimension.png": one_dimension()}
    with matplotlib.rc_context(NARROW):
        sharp = {
            "running_phone.png": draw_running(data),
            "one_dimension_phone.png": one_dimension(columns=1),
            "structure.png": az_cv.plots.plot_structure(az_cv.structure(data)).figure,
            "coverage.png": coverage(),
        }
    for name, figure in (figures | sharp).items():
        figure.savefig(STATIC / name, dpi=SHARP if name in sharp else 110)
        print(STATIC / name)
    made = {name: digest(names) for name, names in SOURCES.items()}
    MADE_FROM.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
