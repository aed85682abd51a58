"""Calibration of the default where modes lie apart: random mixtures of three Gaussians, d = 1.

    python examples/benchmarks/gaps.py [--draws 50 100 200 500] [--mixtures 40] [--first-seed 0]
        [--ignore-gaps]

Weights uniform on the simplex, means N(0, 3), sds from 0.22 to 1; four functions of each mixture,
in one chain of independent draws. Prints how many of the estimates are more than two and more than
four of their claimed errors off, the worst of them, the RMS z-score, and the same for plain
averages. Mixtures with a component of which there is no draw are left out: nothing in the draws or
the scores tells of it. The constants of ``az_cv.engine.gaps`` were settled on seeds 0 to 239.
"""

import argparse
import warnings

import numpy as np

from az_cv.engine import engine


def mixture(rng, n):
    """Return draws, scores, values of four functions, and their expectations; None if unseen."""
    weights = rng.dirichlet(np.ones(3))
    means, sds = 3**0.5 * rng.normal(size=3), np.sqrt(0.05 + rng.uniform(size=3) ** 2)
    which = rng.choice(3, size=n, p=weights)
    if len(np.unique(which)) < 3:
        return None
    x = means[which] + sds[which] * rng.normal(size=n)
    logs = np.log(weights / sds) - 0.5 * ((x[:, None] - means) / sds) ** 2
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    scores = (shares * (means - x[:, None]) / sds**2).sum(axis=1)
    values = np.stack([x, x**2, np.cos(x), np.exp(-0.5 * x**2)], axis=1)
    wide = 1 + sds**2
    truth = np.stack(
        [
            means,
            means**2 + sds**2,
            np.exp(-0.5 * sds**2) * np.cos(means),
            np.exp(-0.5 * means**2 / wide) / np.sqrt(wide),
        ]
    )
    return x, scores, values, truth @ weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, nargs="+", default=[50, 100, 200, 500])
    parser.add_argument("--mixtures", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--ignore-gaps", action="store_true", help="leave their error out")
    args = parser.parse_args()
    if args.ignore_gaps:
        engine.gap_error = lambda x, s, outputs, errors: np.zeros(outputs.shape[1])
    warnings.simplefilter("ignore")  # no gain: the table tells
    print("| draws | answer  | estimates | beyond 2 | beyond 4 | worst | RMS z | median gain |")
    print("|-------|---------|-----------|----------|----------|-------|-------|-------------|")
    for n in args.draws:
        z, gain = {"default": [], "plain": []}, []
        for seed in range(args.first_seed, args.first_seed + args.mixtures):
            if (made := mixture(np.random.default_rng(seed), n)) is None:
                continue
            x, s, f, truth = made
            found = engine.run_engine(x[None, :, None], s[None, :, None], f[None]).estimate
            z["default"].append((found.mean - truth) / found.mcse)
            z["plain"].append((found.plain_mean - truth) / found.plain_mcse)
            gain.append((found.plain_mcse / found.mcse) ** 2)
        for answer, errors in z.items():
            size = np.abs(errors)
            print(
                f"| {n:5d} | {answer:7s} | {size.size:9d} | {(size > 2).sum():8d} | "
                f"{(size > 4).sum():8d} | {size.max():5.1f} | {np.sqrt((size**2).mean()):5.2f} | "
                f"{np.median(gain) if answer == 'default' else 1:11.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
