"""Print the table of the README: eight schools, plain averages against az_cv.

python examples/before_after.py
"""

import az_cv
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


def main():
    estimates = az_cv.fit(az_cv.load_eight_schools(), functions).estimates
    print("| | plain average | az_cv | plain average would need |")
    print("|---|---|---|---|")
    for label, (name, coords) in ROWS.items():
        row = {key: float(estimates[name].sel(coords | {"summary": key})) for key in KEYS}
        plain = with_error(row["plain_mean"], row["plain_mcse_mean"])
        reduced = with_error(row["mean"], row["mcse_mean"])
        gain = gain_text(row["vrf_mean"])
        print(f"| {label} | {plain} | {reduced} | {gain} times the draws |")


if __name__ == "__main__":
    main()
