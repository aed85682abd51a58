"""Print the table of the README: eight schools, plain averages against az_cv.

    python examples/before_after.py

``make figures`` puts it into the README and onto the first page of the documentation. The exact
values are integrals over one dimension, computed in ``tests/test_datasets.py``; the last two rows
have none.
"""

import az_cv
from az_cv.datasets import EIGHT_SCHOOLS_MEANS
from az_cv.display.digits import gain_text, with_error

KEYS = ("mean", "mcse_mean", "plain_mean", "plain_mcse_mean", "vrf_mean")
ROWS = {
    "mu, the average effect": ("mu", {}),
    "tau, the spread between schools": ("tau", {}),
    "theta, effect in Choate": ("theta", {"school": "Choate"}),
    "the largest of the eight effects": ("largest", {}),
    "P(effect in Choate is the largest)": ("best", {}),
}


def functions(post):
    theta = post["theta"]
    largest = theta.max("school")
    best = theta.sel(school="Choate", drop=True) == largest
    return {"mu": post["mu"], "tau": post["tau"], "theta": theta, "largest": largest, "best": best}


def table():
    """Return the lines of the table."""
    estimates = az_cv.fit(az_cv.load_eight_schools(), functions).estimates
    lines = ["| | plain average | az_cv | exact | gain |", "|---|---|---|---|---|"]
    for label, (name, coords) in ROWS.items():
        row = {key: float(estimates[name].sel(coords | {"summary": key})) for key in KEYS}
        plain = with_error(row["plain_mean"], row["plain_mcse_mean"])
        reduced = with_error(row["mean"], row["mcse_mean"])
        exact = EIGHT_SCHOOLS_MEANS.get("".join([name, *(f"[{c}]" for c in coords.values())]), "–")
        gain = gain_text(row["vrf_mean"])
        lines.append(f"| {label} | {plain} | {reduced} | {exact} | {gain}× |")
    return lines


def main():
    print("\n".join(table()))


if __name__ == "__main__":
    main()
