"""Seconds that the scores of a Stan fit take: 4 x 1000 draws of ten parameters.

    python examples/benchmarks/stan_scores.py [--library prophet_model.so]

The model is prophet's, whose wheel holds a CmdStan executable. With ``--library``, the same model
compiled for BridgeStan, its route is compared with a bare loop over ``log_density_gradient``.
"""

import argparse
import importlib.util
import logging
import tempfile
import time
from pathlib import Path

import cmdstanpy
import numpy as np

import az_cv


def data():
    """Return data for a linear trend with five changes and two regressors."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 100)
    return {
        **{"T": 100, "K": 2, "S": 5, "t": t, "cap": np.zeros(100)},
        **{"y": 1 + t + 0.1 * rng.normal(size=100), "t_change": np.linspace(0.1, 0.9, 5)},
        **{"X": np.stack([np.sin(6 * t), np.cos(6 * t)], axis=1), "sigmas": np.ones(2)},
        **{"tau": 0.5, "trend_indicator": 0, "s_a": np.ones(2), "s_m": np.zeros(2)},
    }


def seconds(function):
    """Return the best of three times, in seconds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    folder = Path(importlib.util.find_spec("prophet").origin).parent / "stan_model"
    with tempfile.TemporaryDirectory() as output:
        data_file = Path(output) / "data.json"
        cmdstanpy.write_stan_json(data_file, data())
        fit = cmdstanpy.CmdStanModel(exe_file=folder / "prophet_model.bin").sample(
            data=str(data_file), output_dir=output, sig_figs=18, seed=1, show_progress=False
        )
        taken = seconds(lambda: az_cv.sources.cmdstan_scores(fit, route="executable"))
        print(
            f"executable: {taken:.2f} s for {fit.chains} x {fit.num_draws_sampling} draws (bar 2)"
        )
        if options.library:
            import bridgestan

            model = bridgestan.StanModel(options.library, str(data_file), warn=False)
            route = {"route": "bridgestan", "stan_file": options.library}
            scores = az_cv.sources.cmdstan_scores(fit, **route)
            points = scores["unconstrained_draw"].values.reshape(-1, model.param_unc_num())
            loop = seconds(lambda: [model.log_density_gradient(point) for point in points])
            taken = seconds(lambda: az_cv.sources.cmdstan_scores(fit, **route))
            print(f"BridgeStan: {taken:.2f} s, {taken / loop:.2f} times a bare loop (bar 2)")


if __name__ == "__main__":
    main()
