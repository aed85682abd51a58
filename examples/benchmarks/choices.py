"""What each family gains on posteriors of different shape, and what it costs.

    python examples/benchmarks/choices.py [--draws 1000]

For every posterior and family: the smallest variance reduction factor among the posterior means of
the parameters, that among their sds, and the seconds of one summary. Prints a Markdown table.
"""

import argparse
import time
import warnings

import numpy as np

import az_cv
from az_cv.display.digits import gain_text
from az_cv.testing import Banana, Funnel, Gaussian, LogisticRegression, StudentT, as_datatree

FAMILIES = {
    "auto": "auto",
    "Kernel()": az_cv.Kernel(),
    "Polynomial(1)": az_cv.Polynomial(order=1),
    "Polynomial(2)": az_cv.Polynomial(order=2),
    "Polynomial(3)": az_cv.Polynomial(order=3),
}


def posteriors(draws):
    yield "eight schools, NUTS", 10, az_cv.load_eight_schools().isel(draw=slice(draws)), None
    targets = {
        "Gaussian": Gaussian(np.eye(5) + 0.5),
        "banana": Banana(),
        "funnel": Funnel(),
        "logistic regression": LogisticRegression(d=8, rows=60),
        "Student t, 7 df": StudentT(d=2, freedom=7.0),
    }
    for name, target in targets.items():
        data, scores = as_datatree(target, draws=draws)
        yield name, scores.sizes["unconstrained_parameter"], data, scores


def words(gain):
    """Return the gain, or that nothing but rounding error is left."""
    return "exact" if gain > 1e20 else f"{gain_text(gain)}×"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="per chain, of four")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    # What most readers take comes first, where narrow screens show it.
    head = ["posterior", *list(FAMILIES)[:2], "d", *list(FAMILIES)[2:]]
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for name, d, data, scores in posteriors(options.draws):
        # The analytic targets also list the squares of their coordinates.
        parameters = [str(key) for key in data["posterior"].data_vars if "^" not in str(key)]
        cells = []
        for family in FAMILIES.values():
            start = time.perf_counter()
            table = az_cv.summary(
                data, scores=scores, family=family, var_names=parameters, attach=False
            )
            seconds = time.perf_counter() - start
            gains = "&nbsp;/ ".join(words(table[key].min()) for key in ("vrf_mean", "vrf_sd"))
            cells.append(f"{gains}, {seconds:.1f}&nbsp;s")
        row = [name, *cells[:2], str(d), *cells[2:]]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
