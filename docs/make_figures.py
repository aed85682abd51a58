"""Draw the pictures of the README and the documentation into ``docs/_static``.

    python docs/make_figures.py

The pictures of the HTML table need ``chromium`` on the path; without it they are left as they are.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib

import az_cv
from az_cv.display.html import summary_html

matplotlib.use("agg")
STATIC = Path(__file__).parent / "_static"
PAGES = {"light": ("#ffffff", "#1b1f24"), "dark": ("#131416", "#e6e6e6")}


def photograph(html: str, output: Path, background: str, colour: str) -> None:
    """Take a picture of an HTML fragment in a browser."""
    browser = shutil.which("chromium")
    if browser is None:
        print(f"{output} is left as it is: there is no chromium")
        return
    style = (
        f"background:{background};color:{colour};font-family:Helvetica,Arial,sans-serif;margin:12px"
    )
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
                "--window-size=1120,330",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={output}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    print(output)


def main() -> None:
    data = az_cv.load_eight_schools()
    html = summary_html(az_cv.summary(data))
    for mode, colours in PAGES.items():
        photograph(html, STATIC / f"table_{mode}.png", *colours)
    figures = {
        "forest.png": az_cv.plots.plot_forest(data).figure,
        "vrf.png": az_cv.plots.plot_vrf(data).figure,
        "structure.png": az_cv.plots.plot_structure(az_cv.structure(data)).figure,
        "running.png": az_cv.plots.plot_running(data, var_names=["mu", "tau"])[0].figure,
    }
    for name, figure in figures.items():
        figure.savefig(STATIC / name, dpi=110)
        print(STATIC / name)


if __name__ == "__main__":
    main()
