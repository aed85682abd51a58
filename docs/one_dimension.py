"""Draw the method in one dimension: draws, score, fitted control variate, residual.

The target is the logarithm of a Gamma variable, whose mean is known; the integrand is the variable
itself. ``docs/make_figures.py`` calls it.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.special

SHAPE = 2.0
DRAWS = 60


def log_density(x):
    return SHAPE * x - np.exp(x)


def score(x):
    return SHAPE - np.exp(x)


def features(x, degree=3):
    """Return Stein features of x, x^2, ... under the second-order operator."""
    powers = range(1, degree + 1)
    return np.stack(
        [k * (k - 1) * x ** max(k - 2, 0) + k * x ** (k - 1) * score(x) for k in powers]
    )


def draw(columns=2):
    """Return the figure, with its four panels in so many columns."""
    rng = np.random.default_rng(4)
    x = np.log(rng.gamma(SHAPE, size=DRAWS))
    exact = scipy.special.digamma(SHAPE)
    design = np.vstack([np.ones_like(x), features(x)]).T
    coefficients = np.linalg.lstsq(design, x, rcond=None)[0]
    grid = np.linspace(-3.2, 2.2, 400)
    g = coefficients[1:] @ features(grid)
    residual = x - coefficients[1:] @ features(x)

    rows = 4 // columns
    size = (8.0, 5.6) if columns == 2 else (4.4, 9.6)
    figure, grid_of_axes = plt.subplots(rows, columns, figsize=size, layout="constrained")
    axes = density, slope, fitted, left = grid_of_axes.ravel()
    values = np.exp(log_density(grid))
    density.fill_between(grid, values, color="#8c8c8c", alpha=0.3, linewidth=0)
    density.plot(x, np.full_like(x, -0.02), "|", color="#1769c4", markersize=12)
    density.axvline(x.mean(), color="#8c8c8c", label=f"average {x.mean():.3f}")
    density.axvline(exact, color="#c8441b", label=f"exact {exact:.3f}")
    density.legend(frameon=False, fontsize="small", loc="upper left")
    density.set_title("1  posterior and draws", loc="left")
    slope.plot(grid, score(grid), color="#1769c4")
    slope.plot(x, score(x), "o", color="#1769c4", markersize=3)
    slope.set_title("2  gradient of its logarithm", loc="left")
    fitted.plot(grid, grid, color="#8c8c8c", label="f(x) = x")
    fitted.plot(grid, g + coefficients[0], color="#1769c4", label="g(x) + constant")
    fitted.plot(x, x, "o", color="#8c8c8c", markersize=3)
    fitted.set_ylim(-3.5, 2.5)
    fitted.legend(frameon=False, fontsize="small", loc="upper left")
    fitted.set_title("3  control variate, fitted", loc="left")
    left.plot(x, x, "o", color="#8c8c8c", markersize=3, label=f"f, average {x.mean():.3f}")
    label = f"f − g, average {residual.mean():.3f}"
    left.plot(x, residual, "o", color="#1769c4", markersize=3, label=label)
    left.axhline(exact, color="#c8441b", linewidth=1, label=f"exact {exact:.3f}")
    left.set_xlim(grid[0], grid[-1])
    left.set_ylim(-3.5, 2.5)
    left.legend(frameon=False, fontsize="small", loc="upper left")
    left.set_title("4  what is left", loc="left")
    for panel in axes:
        panel.set_xlabel("x")
        panel.spines[["top", "right"]].set_visible(False)
    density.set_yticks([])
    return figure
