"""Draw the coverage of the error bars, as the table of ``docs/error_bars.md`` has it."""

import re
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

PAGE = Path(__file__).parent / "error_bars.md"
COLUMNS = ("means, 4 × 250", "sds, 4 × 250", "means, 4 × 1000", "sds, 4 × 1000")
MARKERS = ("o", "s", "o", "s")
COLOURS = ("#1769c4", "#b5660b", "#1769c4", "#b5660b")
FILLS = ("full", "full", "none", "none")


def read():
    """Return the shares of each row of the table, under the target and the kind of draws."""
    found, target = {}, ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 + len(COLUMNS) and cells[1] in ("independent", "NUTS"):
            target = cells[0] or target
            shares = [float(re.search(r", ([\d.]+)%", cell)[1]) for cell in cells[2:]]
            found[f"{target}: {cells[1]}"] = shares
    return found


def draw():
    """Return the figure."""
    rows = read()
    shares = np.array(list(rows.values()))
    # Narrow enough to be read on a phone as a whole.
    figure, ax = plt.subplots(figsize=(4.6, 5.8), layout="constrained")
    for k, column in enumerate(COLUMNS):
        place = np.arange(len(rows)) + 0.18 * (k - 1.5)
        style = {"color": COLOURS[k], "fillstyle": FILLS[k], "label": column}
        ax.plot(shares[:, k], place, MARKERS[k], **style)
    ax.axvline(95, color="#c8441b", linewidth=1, label="95%")
    names = [
        textwrap.fill(name.replace("d = ", "d\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), 26)
        for name in rows
    ]
    ax.set_yticks(range(len(rows)), names, fontsize="small")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(88, 100.6)
    ax.set_xlabel("95% intervals that hold the truth, in %")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    figure.legend(frameon=False, ncols=2, loc="outside upper right", fontsize="small")
    return figure
