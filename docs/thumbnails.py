"""Draw the small pictures on the cards of the notebooks.

    python docs/thumbnails.py

They are sketches of what each notebook is about, and show no results.
"""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

STATIC = Path(__file__).parent / "_static"
GREY, BLUE, RED = "#8c8c8c", "#1769c4", "#c8441b"
X = np.linspace(-3.5, 3.5, 200)
BELL = np.exp(-(X**2) / 2)


def eight_schools_pymc(ax):
    rng = np.random.default_rng(3)
    shift = rng.normal(0, 0.5, 6)
    ax.errorbar(shift, range(6), xerr=1, fmt="o", color=GREY, elinewidth=3, markersize=7)
    ax.plot(np.zeros(6), range(6), "o", color=BLUE, markersize=9)
    ax.axvline(0, color=BLUE, linewidth=1)


def evidence_bayes_factor(ax):
    for shift, width, colour in ((-0.8, 0.8, BLUE), (0.9, 1.4, GREY)):
        curve = np.exp(-(((X - shift) / width) ** 2) / 2) / width
        ax.fill_between(X, curve, color=colour, alpha=0.45)
        ax.plot(X, curve, color=colour, linewidth=3)


def large_traces_zarr(ax):
    for row in range(4):
        for column in range(7):
            asked = row in (1, 2) and column == 4
            box = plt.Rectangle((column, row), 0.86, 0.86, color=BLUE if asked else "#d5d5d5")
            ax.add_patch(box)
    ax.set(xlim=(-0.2, 7), ylim=(-0.2, 4), aspect="equal")


def posterior_without_mcmc(ax):
    ax.plot(X, BELL, color=GREY, linewidth=3, linestyle="--")
    skewed = np.exp(1.2 * (X + 0.35) - np.exp(0.9 * (X + 0.1))) * 1.9
    ax.fill_between(X, skewed / skewed.max(), color=BLUE, alpha=0.4)
    ax.plot(X, skewed / skewed.max(), color=BLUE, linewidth=3)


def predictions_and_events(ax):
    ax.plot(X, X > 0, color=GREY, linewidth=3)
    ax.plot(X, 1 / (1 + np.exp(-2 * X)), color=BLUE, linewidth=4)


def regression_61_coefficients(ax):
    k = np.arange(20)
    centre = np.sin(k / 3)
    ax.errorbar(k, centre, yerr=0.55, fmt="none", color=GREY, elinewidth=4)
    ax.errorbar(k, centre, yerr=0.15, fmt="o", color=BLUE, elinewidth=4, markersize=5)


def stan_workflow(ax):
    t = np.linspace(0, 1, 40)
    trend = np.where(t < 0.5, 0.6 * t, 0.3 + 2 * (t - 0.5))
    noise = np.random.default_rng(1).normal(0, 0.09, 40)
    ax.plot(t, trend + 0.12 * np.sin(25 * t) + noise, "o", color=GREY, markersize=5)
    ax.plot(t, trend, color=BLUE, linewidth=4)
    ax.axvline(0.5, color=RED, linewidth=2, linestyle=":")


def main() -> None:
    for notebook in sorted((STATIC.parents[1] / "examples").glob("*.ipynb")):
        figure, ax = plt.subplots(figsize=(3.2, 1.8), layout="constrained")
        globals()[notebook.stem](ax)
        ax.axis("off")
        figure.savefig(STATIC / f"notebook_{notebook.stem}.png", dpi=100)
        plt.close(figure)


if __name__ == "__main__":
    main()
