"""How time, memory and gain grow with draws, dimensions and quantities.

    python examples/benchmarks/scale.py [--what draws dimensions outputs training gain ...]

Every size is read in pieces, and runs in a process of its own, so that its peak memory is its own.
The target is bent, and its means and sds are known: ``rms z`` is the root mean square of errors
over what was claimed, 1 where errors are right.

* draws, dimensions, outputs: a table with the seconds that processors were busy and those that the
  cost model expected, and the exponents with which seconds grow;
* training: the same of a network that is trained on minibatches;
* resident: the default for draws in memory, against a network with its seconds;
* gain: how the gain grows with draws, over several seeds;
* zarr: 1,000,000 draws in 100 dimensions (1.6 GB) from disk within 2 GB;
* gram: sums of products of features against a bare loop of BLAS over the same blocks;
* processes: clusters of one, two and four processes, one thread of BLAS each.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

BEND = 0.3
SIZES = {
    "draws": [(n, 10, 10) for n in (1_000, 8_000, 64_000, 256_000, 1_000_000)],
    "dimensions": [(25_000, d, 10) for d in (2, 10, 100, 1_000, 10_000)],
    "outputs": [(4_000, 10, q) for q in (1, 100, 10_000, 100_000)],
    "training": [(n, 10, 10) for n in (40_000, 160_000, 1_000_000)],
}
# Scores of 10,000 dimensions have products of 0.8 GB, once for each fold and for the solver.
RESIDENT = [(120_000, 3, 3), (120_000, 10, 10), (1_000_000, 10, 10)]
LIMIT = {"draws": "2GB", "dimensions": "9GB", "outputs": "2GB", "training": "100MB"}
GAINS = (4_000, 16_000, 64_000, 256_000, 1_000_000)  # draws
KINDS = (*SIZES, "resident", "gain", "zarr", "gram", "processes")
TOGETHER = 2_000  # quantities in a chunk


def bent(z):
    """Return draws and scores from standard normal numbers: one coordinate bends the others."""
    bend = BEND / np.sqrt(max(z.shape[-1] - 1, 1) / 9)
    x = z.copy()
    x[..., 1:] += bend * (z[..., :1] ** 2 - 1)
    s = -z
    s[..., 0] += 2 * bend * z[..., 0] * z[..., 1:].sum(axis=-1)
    return x, s


def lazy_target(n, d, q, seed=0, chunk=10_000):
    """Return draws, scores and q quantities as dask arrays, made when they are asked for."""
    import dask.array as da

    draws = n // 4
    chunks = (1, min(chunk, draws, max(50, 2 * 10**6 // d)), d)
    z = da.random.default_rng([seed, n, d]).normal(size=(4, draws, d), chunks=chunks)
    both = z.map_blocks(lambda block: np.stack(bent(block)), new_axis=0, chunks=((2,), *z.chunks))
    x, s = both[0], both[1]
    # Quantities beyond the parameters are multiples of these: the truth is known for all of them.
    pick, factor = np.arange(q) % d, 1.0 + np.arange(q) // d
    blocks = [
        x.map_blocks(multiples, pick[k : k + TOGETHER], factor[k : k + TOGETHER], dtype=float,
                     chunks=(*x.chunks[:2], (len(pick[k : k + TOGETHER]),)))
        for k in range(0, q, TOGETHER)
    ]  # fmt: skip
    return x, s, da.concatenate(blocks, axis=2), pick, factor


def multiples(block, pick, factor):
    return block[..., pick] * factor


def as_data(x, s, f):
    import xarray as xr

    import az_cv

    dims = ("chain", "draw")
    labels = {"chain": range(x.shape[0]), "draw": range(x.shape[1])}
    names = [f"x_{j}" for j in range(x.shape[2])]
    inner = (*dims, "unconstrained_parameter")
    scores = xr.Dataset(
        {"unconstrained_draw": (inner, x), "gradient": (inner, s)},
        coords={**labels, "unconstrained_parameter": names},
    )
    posterior = xr.Dataset({"f": ((*dims, "k"), f)}, coords=labels)
    assert az_cv.__version__
    return posterior, scores


def run_one(n, d, q, limit, max_time, store=None, seed=0, trained=False):
    """Summarise one target, and print what it took as JSON."""
    import dask
    import xarray as xr

    from az_cv import SGD, NeuralNetwork
    from az_cv.containers.idata import as_idata
    from az_cv.engine.settings import Settings
    from az_cv.engine.streaming.memory import memory_bytes
    from az_cv.labelled.streaming import Large, estimate_large

    if store is None:
        x, s, f, pick, factor = lazy_target(n, d, q, seed)
        posterior, scores = as_data(x, s, f)
    else:
        scores = xr.open_zarr(store, consolidated=False)
        pick, factor = np.arange(q), np.ones(q)
        x = scores["unconstrained_draw"].rename(unconstrained_parameter="k").drop_vars("k")
        posterior = xr.Dataset({"f": x[..., :q]})
    started, busy = time.perf_counter(), time.process_time()
    # What fits into the limit would take the ordinary route.
    large = Large(as_idata(posterior), scores, posterior, posterior, memory_bytes(limit))
    with dask.config.set(scheduler="threads"):
        network = NeuralNetwork(widths=(128,)), SGD(strength=1.0)
        settings = Settings(*network, random_seed=seed) if trained else Settings()
        result = estimate_large(large, settings, max_time).result
    seconds = time.perf_counter() - started
    row = {
        **judged(result, d, pick, factor),
        "n": n,
        "d": d,
        "q": q,
        "seconds": seconds,
        "busy": time.process_time() - busy,
        "expected": float(result.settings["cost"].split()[0]),
        "plan": result.settings["stream"],
        "cost": result.settings["cost"],
    }
    print(json.dumps(row))


def judged(result, d, pick, factor):
    """Return gains, z of the estimates, and the memory that they took."""
    found = result.estimates["f"]
    z = found.sel(summary="mean").values / found.sel(summary="mcse_mean").values
    bend = BEND / np.sqrt(max(d - 1, 1) / 9)
    truth = np.where(pick == 0, 1.0, np.sqrt(1 + 2 * bend**2)) * factor
    z_sd = (found.sel(summary="sd").values - truth) / found.sel(summary="mcse_sd").values
    return {
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "gain": float(np.median(found.sel(summary="vrf_mean"))),
        "gain_sd": float(np.median(found.sel(summary="vrf_sd"))),
        "z": float(np.sqrt(np.mean(z**2))),
        "z_sd": float(np.sqrt(np.mean(z_sd**2))),
    }


def run_resident(n, d, q, family, seed=0):
    """Fit draws in memory, and print what it took as JSON."""
    import az_cv

    x, s = bent(np.random.default_rng([seed, n, d]).normal(size=(4, n // 4, d)))
    posterior, scores = as_data(x, s, x[..., :q])
    started, busy = time.perf_counter(), time.process_time()
    result = az_cv.fit(posterior, scores=scores, family=family, random_seed=0, progressbar=False)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    row = {"n": n, "d": d, "seconds": seconds, "busy": busy, "found": result.settings["family"]}
    print(json.dumps({**row, **judged(result, d, np.arange(q), np.ones(q))}))


def run_apart(*arguments, threads=1, kind="one", **options):
    """Run one size in a process of its own."""
    command = [sys.executable, __file__, f"--{kind}", json.dumps(arguments), json.dumps(options)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{arguments} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(what, sizes, limit, max_time):
    print(f"\n{what} (memory_limit {limit})")
    print(
        f"{'n':>9s}{'d':>7s}{'q':>8s}{'seconds':>9s}{'busy':>9s}{'expected':>9s}{'peak GB':>9s}"
        f"{'gain':>10s}{'gain sd':>10s}{'rms z':>7s}{'z sd':>7s}  picked"
    )
    rows = []
    for n, d, q in sizes:
        row = run_apart(n, d, q, limit, max_time, trained=what == "training")
        rows.append(row)
        print(
            f"{n:9d}{d:7d}{q:8d}{row['seconds']:9.1f}{row['busy']:9.1f}{row['expected']:9.1f}"
            f"{row['peak']:9.2f}{row['gain']:10.3g}{row['gain_sd']:10.3g}{row['z']:7.2f}{row['z_sd']:7.2f}"
            f"  {row['plan']}; {row['cost']}",
            flush=True,
        )
    key = {"dimensions": "d", "outputs": "q"}.get(what, "n")
    for a, b in itertools.pairwise(rows):
        exponent = np.log(b["seconds"] / a["seconds"]) / np.log(b[key] / a[key])
        print(f"from {a[key]} to {b[key]}: seconds grow as {key}^{exponent:.2f}")
    ratios = [row["seconds"] / row["expected"] for row in rows]
    worst = max(max(ratio, 1 / ratio) for ratio in ratios)
    print(f"the cost model is off by a factor of {worst:.1f} at most; the bar is 10")


def gain(most, max_time, seeds=3):
    """Show how the gain grows with draws: geometric means over seeds."""
    print(f"\ngain, d = 10, 10 quantities, {seeds} seeds: geometric means, and rms z over all")
    rows = []
    for n in [n for n in GAINS if n <= most]:
        found = [run_apart(n, 10, 10, LIMIT["draws"], max_time, seed=k) for k in range(seeds)]
        mean, sd = (np.exp(np.mean(np.log([r[k] for r in found]))) for k in ("gain", "gain_sd"))
        z, z_sd = (np.sqrt(np.mean([r[k] ** 2 for r in found])) for k in ("z", "z_sd"))
        each = ", ".join(f"{r['gain']:.2g}" for r in found)
        rows.append((n, mean, sd))
        print(
            f"{n:9d} draws: gain of means {mean:.3g} ({each}), "
            f"of sds {sd:.3g}, rms z {z:.2f} and {z_sd:.2f}",
            flush=True,
        )
    for (n, *before), (m, *after) in itertools.pairwise(rows):
        growth = np.log(np.divide(after, before)) / np.log(m / n)
        print(f"from {n} to {m}: gains grow as n^{growth[0]:.2f} and n^{growth[1]:.2f}")


def resident(most):
    """Compare what the default does with many draws in memory with a network."""
    print(f"\nresident\n{'n':>9s}{'d':>5s}  {'family':8s}", end="")
    print(f"{'seconds':>9s}{'busy':>9s}{'peak GB':>9s}{'gain':>10s}{'gain sd':>10s}{'rms z':>7s}")
    for size in [size for size in RESIDENT if size[0] <= most]:
        for family in ("auto", "network"):
            row = run_apart(*size, family, kind="resident", threads=os.cpu_count())
            print(
                f"{row['n']:9d}{row['d']:5d}  {family:8s}{row['seconds']:9.1f}{row['busy']:9.1f}"
                f"{row['peak']:9.2f}{row['gain']:10.3g}{row['gain_sd']:10.3g}{row['z']:7.2f}"
                f"{row['z_sd']:7.2f}  {row['found']}",
                flush=True,
            )


def zarr(max_time):
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "scores.zarr")
        x, s, _, _, _ = lazy_target(1_000_000, 100, 1)
        _, scores = as_data(x, s, x[..., :1])
        scores.to_zarr(store, zarr_format=2, consolidated=False)
        row = run_apart(1_000_000, 100, 100, "2GB", max_time, store=store)
    print(f"\nzarr: n = 1e6, d = 100, 100 quantities from disk: {row}")
    print(f"peak {row['peak']:.2f} GB; the bar is 2 GB: {'ok' if row['peak'] < 2 else 'MISSED'}")


def gram(n=160_000, d=40, block=2048):
    """Compare the sums of products of features with a bare loop of BLAS over the same blocks.

    First one task of a stream and a loop with one thread, then two tasks side by side and a loop
    whose products have two threads.
    """
    from concurrent.futures import ThreadPoolExecutor

    from scipy.linalg import blas
    from threadpoolctl import threadpool_limits

    from az_cv.engine.streaming.design import Design
    from az_cv.engine.streaming.gram import Functions, Work, sums_of
    from az_cv.engine.streaming.pieces import Draws, cut
    from az_cv.engine.whitening import fit_whitening

    x, s = bent(np.random.default_rng(0).normal(size=(1, n, d)))
    draws = Draws(x, s, x[..., :5])
    functions = Functions(slice(0, 5), np.zeros(5), np.ones(5), np.ones(5))
    work = Work(fit_whitening(x[0]), Design(d, 2), functions, block)
    halves = [
        cut(Draws(*(a[:, part] for a in (x, s, draws.outputs))), "chain", n, 1)[0]
        for part in (slice(n // 2), slice(n // 2, n))
    ]
    features = work.design.rows(x[0, :block], s[0, :block])

    def bare(threads):
        total = np.zeros((work.design.size,) * 2, order="F")
        with threadpool_limits(limits=threads):
            for k in range(0, n, block):
                rows = features[:, : min(block, n - k)]
                total = blas.dsyrk(1.0, rows.T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1)

    def ours(threads):
        with threadpool_limits(limits=1), ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda segment: sums_of(work, segment), halves))

    print(f"\ngram: {n} draws, {work.design.size} features, {os.cpu_count()} cores")
    for threads in (1, 2):
        seconds = {function: [] for function in (bare, ours)}
        for _ in range(5):
            for function, found in seconds.items():
                started = time.perf_counter()
                function(threads)
                found.append(time.perf_counter() - started)
        bare_seconds, own_seconds = (min(found) for found in seconds.values())
        share = bare_seconds / own_seconds
        print(
            f"{threads} threads: bare dsyrk {bare_seconds:.2f} s, ours {own_seconds:.2f} s, "
            f"{share:.0%} of bare BLAS; the bar is 60%: {'ok' if share >= 0.6 else 'MISSED'}",
            flush=True,
        )


def processes(n, d=20):
    """Time clusters of one, two and four processes, and compare their answers."""
    import dask
    from distributed import Client, LocalCluster

    import az_cv

    dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    x, s, f, _, _ = lazy_target(n, d, d)
    posterior, scores = as_data(x, s, f)
    found = {}
    print(f"\nprocesses: n = {n}, d = {d}, BLAS one thread each, {os.cpu_count()} cores")
    for count in (1, 2, 4):
        cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster):
            started = time.perf_counter()
            result = az_cv.fit(posterior, scores=scores, memory_limit="30MB", progressbar=False)
            seconds = time.perf_counter() - started
        found[count] = (seconds, result.estimates["f"].values)
        apart = np.abs(found[count][1] - found[1][1]) / np.maximum(np.abs(found[1][1]), 1e-3)
        print(
            f"{count} processes: {seconds:.1f} s, speed-up {found[1][0] / seconds:.2f}, largest "
            f"relative difference to one process {np.nanmax(apart):.1e}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", default=list(KINDS))
    parser.add_argument("--most", type=int, default=10**9, help="largest n, d and q")
    parser.add_argument("--max-time", type=float, default=None, help="seconds of each fit")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--resident", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run_one(*json.loads(args.one[0]), **json.loads(args.one[1]))
        return
    if args.resident:
        run_resident(*json.loads(args.resident[0]), **json.loads(args.resident[1]))
        return
    for what in args.what:
        if what in SIZES:
            sizes = [size for size in SIZES[what] if max(size) <= args.most]
            table(what, sizes, LIMIT[what], args.max_time)
        elif what == "resident":
            resident(args.most)
        elif what == "gain":
            gain(args.most, args.max_time)
        elif what == "zarr":
            zarr(args.max_time)
        elif what == "gram":
            gram()
        else:
            processes(min(200_000, args.most))


if __name__ == "__main__":
    main()
