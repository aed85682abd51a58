import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.stan_draws import flatten_draws
from az_cv.sources.stan_model import load_stan_model, stan_scores

stanio = pytest.importorskip("stanio")
pytestmark = pytest.mark.stan

SCHOOLS = {
    "J": 8,
    "y": [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0],
    "sigma": [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0],
}


def constrained(model, points, **include):
    return np.array([[model.param_constrain(u, **include) for u in chain] for chain in points])


def posterior_of(flat, names):
    """Arrange Stan's flat order by stanio, a route of its own, members of tuples one by one."""
    variables = {}

    def add(name, values):
        if values.dtype == object:
            for member in range(len(values.flat[0])):
                items = [np.asarray(item[member]) for item in values.flat]
                add(f"{name}:{member + 1}", np.reshape(items, (*values.shape, *items[0].shape)))
        else:
            dims = [f"{name}_dim_{axis}" for axis in range(values.ndim - 2)]
            variables[name] = (["chain", "draw", *dims], values)

    for name, variable in stanio.parse_header(",".join(names)).items():
        values = variable.extract_reshape(flat)
        add(name, values.reshape(*flat.shape[:2], *variable.dimensions))
    return xr.Dataset(variables, {dim: range(n) for dim, n in zip(["chain", "draw"], flat.shape)})


def unconstrained_points(model, seed=0, chains=2, draws=30):
    return np.random.default_rng(seed).normal(size=(chains, draws, model.param_unc_num()))


def scores_at(model, points):
    data = posterior_of(constrained(model, points), model.param_names())
    return stan_scores(data, model=model)


def test_eight_schools_gradient_is_the_hand_derived_one(stan_model):
    model = stan_model("eight_schools", SCHOOLS)
    points = unconstrained_points(model)
    scores = scores_at(model, points)
    mu, log_tau, z = points[..., 0], points[..., 1], points[..., 2:]
    tau = np.exp(log_tau)
    theta = mu[..., None] + tau[..., None] * z
    pull = (np.array(SCHOOLS["y"]) - theta) / np.square(SCHOOLS["sigma"])
    by_mu = -mu / 25 + pull.sum(axis=-1)
    # Cauchy(0, 5) prior on tau, and 1 from the Jacobian of exp
    by_log_tau = -2 * tau**2 / (25 + tau**2) + tau * (pull * z).sum(axis=-1) + 1
    by_z = -z + tau[..., None] * pull
    expected = np.concatenate([by_mu[..., None], by_log_tau[..., None], by_z], axis=-1)
    np.testing.assert_allclose(scores["gradient"], expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(scores["unconstrained_draw"], points, rtol=1e-10, atol=1e-12)
    assert scores["unconstrained_parameter"].values[:3].tolist() == ["mu", "tau", "z.1"]
    assert scores.attrs["source"] == "BridgeStan"


def test_transformed_parameters_and_generated_quantities_are_ignored(stan_model):
    model = stan_model("eight_schools", SCHOOLS)
    points = unconstrained_points(model)
    everything = {"include_tp": True, "include_gq": True}
    flat = constrained(model, points, rng=model.new_rng(1), **everything)
    scores = stan_scores(posterior_of(flat, model.param_names(**everything)), model=model)
    xr.testing.assert_identical(scores, scores_at(model, points))


def test_bounds_have_hand_derived_gradients_with_jacobian(stan_model):
    model = stan_model("bounds")
    points = unconstrained_points(model)
    scores = scores_at(model, points)
    u = np.moveaxis(points, -1, 0)
    share = 1 / (1 + np.exp(-u))
    low, high, both = -1 + np.exp(u[0]), 2 - np.exp(u[1]), 1 + 2 * share[2]
    above = low + np.exp(u[3])
    between = low + np.exp(u[3]) * share[4]
    first = u[6]
    second = first + np.exp(u[7])
    third = second + np.exp(u[8])
    expected = [
        -(low + above + between) * np.exp(u[0]) + 1,
        high * np.exp(u[1]) + 1,
        -both * 2 * share[2] * (1 - share[2]) + 1 - 2 * share[2],
        # log(above - low) is in the Jacobian of `between` too
        -(above + between * share[4]) * np.exp(u[3]) + 2,
        -between * np.exp(u[3]) * share[4] * (1 - share[4]) + 1 - 2 * share[4],
        -u[5],
        -(first + second + third),
        -(second + third) * np.exp(u[7]) + 1,
        -third * np.exp(u[8]) + 1,
        -np.exp(2 * u[9]) + 1,
        -np.exp(2 * u[10]) + 1,
    ]
    np.testing.assert_allclose(scores["unconstrained_draw"], points, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scores["gradient"], np.stack(expected, -1), rtol=1e-8, atol=1e-8)


def simplex_gradient(model, u, concentration):
    """Derive the gradient of a Dirichlet under Stan's simplex transform, before and since 2.37."""
    version = model.model_info().split("Stan version:")[1].split()[0]
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 37):
        left = concentration.size - 1 - np.arange(u.shape[-1])
        share = 1 / (1 + np.exp(-u) * left)
        rest = np.cumsum(concentration[::-1])[::-1][1:]
        return concentration[:-1] * (1 - share) - rest * share  # Beta(concentration, rest)
    # softmax of an isometry: the basis of vectors that sum to zero (1, -1, 0), (1, 1, -2), ...
    size = concentration.size
    basis = np.zeros((size, size - 1))
    for k in range(1, size):
        basis[:k, k - 1], basis[k, k - 1] = 1, -k
        basis[:, k - 1] /= np.sqrt(k * (k + 1))
    weights = np.exp(u @ basis.T)
    simplex = weights / weights.sum(axis=-1, keepdims=True)
    return (concentration - concentration.sum() * simplex) @ basis


def test_structured_parameters_have_hand_derived_gradients_with_jacobian(stan_model):
    model = stan_model("structured")
    points = unconstrained_points(model)
    scores = scores_at(model, points)
    names = scores["unconstrained_parameter"].values
    draws, gradient = scores["unconstrained_draw"].values, scores["gradient"].values

    def part(values, variable):
        return values[..., [name.split(".")[0] == variable for name in names]]

    first, second = part(draws, "share")[..., :2], part(draws, "share")[..., 2:]
    expected = {
        "share": [
            simplex_gradient(model, first, np.array([2.0, 3.0, 4.0])),
            simplex_gradient(model, second, np.array([5.0, 1.0, 2.0])),
        ],
        # entries are tanh(u) times what is left of the row: exponents of 1 - tanh(u)^2
        "L": [-2 * np.tanh(part(draws, "L")) * np.array([3.5, 3.5, 3.0])],
        "R": [-2 * np.tanh(part(draws, "R")) * np.array([2.5, 2.5, 2.0])],
    }
    for variable, pieces in expected.items():
        np.testing.assert_allclose(
            part(gradient, variable),
            np.concatenate(pieces, axis=-1),
            rtol=1e-7,
            atol=1e-7,
            err_msg=variable,
        )
    for variable in expected:
        np.testing.assert_allclose(
            part(draws, variable), part(points, variable), rtol=1e-7, atol=1e-7
        )


def test_vectors_that_sum_to_zero_have_the_gradient_of_an_isometry(stan_model):
    model = stan_model("sum_to_zero")
    points = unconstrained_points(model)
    scores = scores_at(model, points)
    np.testing.assert_allclose(scores["unconstrained_draw"], points, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(scores["gradient"], -points, rtol=1e-7, atol=1e-7)


def test_unit_vectors_get_the_length_they_have_under_the_unconstrained_density(stan_model):
    model = stan_model("structured")
    points = unconstrained_points(model, chains=4, draws=500)
    scores = scores_at(model, points)
    chosen = scores["unconstrained_parameter"].str.startswith("direction").values

    def vectors(values):
        return values[..., chosen].reshape(*values.shape[:2], 2, 3)

    def units(values):
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    y = vectors(scores["unconstrained_draw"].values)
    length, unit = np.linalg.norm(y, axis=-1, keepdims=True), units(y)
    np.testing.assert_allclose(unit, units(vectors(points)))
    # target += slope . y / |y|, and the Jacobian -|y|^2 / 2
    slope = np.array([[1.5, 0.0, 0.0], [0.0, 0.0, 0.5]])
    along = (slope * unit).sum(axis=-1, keepdims=True)
    expected = (slope - unit * along) / length - y
    np.testing.assert_allclose(vectors(scores["gradient"].values), expected, atol=1e-9)
    squares = np.square(length)
    assert abs(squares.mean() - 3) < 5 * np.sqrt(6 / squares.size)


def test_containers_keep_their_layout(stan_model):
    model = stan_model("layout")
    points = unconstrained_points(model)
    scores = scores_at(model, points)
    np.testing.assert_allclose(scores["unconstrained_draw"], points)
    means = []
    for name in scores["unconstrained_parameter"].values:
        # pairs.2:2.1 has mean 21, A.1.3 has mean 13, pair:1 and z.real have mean zero.
        name = name.replace("pair:2", "pair").replace("pair:1", "zero")
        name = name.replace(":1", "").replace(":2", "")
        means.append(float("0" + "".join(part for part in name.split(".")[1:] if part.isdigit())))
    np.testing.assert_allclose(scores["gradient"], np.array(means) - points)


def test_order_of_chain_and_draw_is_irrelevant_and_input_unchanged(stan_model):
    model = stan_model("layout")
    points = unconstrained_points(model)
    data = posterior_of(constrained(model, points), model.param_names())
    # The order of the other dimensions is the only sign of Stan's axes.
    turned = data.transpose("draw", "chain", ...)
    before = turned.copy(deep=True)
    xr.testing.assert_identical(stan_scores(turned, model=model), stan_scores(data, model=model))
    xr.testing.assert_identical(turned, before)


def test_failed_points_are_counted_named_and_dropped(stan_model):
    model = stan_model("rejects", {"limit": 1.5})
    points = unconstrained_points(model, draws=50)
    points[..., 0] = np.minimum(points[..., 0], 1.0)
    points[0, 7, 0] = points[1, 7, 0] = points[1, 20, 0] = 2.0
    data = posterior_of(points, model.param_names())
    with pytest.warns(
        NonFiniteScoresWarning, match=r"(?s)3 of 100 draws.*chain 0, draw 7.*limit.*\[7, 20\]"
    ):
        scores = stan_scores(data, model=model)
    kept = np.delete(np.arange(50), [7, 20])
    np.testing.assert_array_equal(scores["draw"], kept)
    np.testing.assert_allclose(scores["gradient"], -points[:, kept])
    assert scores.attrs["dropped_draws"] == 2


def test_a_model_that_rejects_most_draws_is_refused(stan_model):
    model = stan_model("rejects", {"limit": -10.0})
    points = unconstrained_points(model)
    with pytest.raises(ValueError, match=r"60 of 60 draws(?s:.*)model and data are those"):
        stan_scores(posterior_of(points, model.param_names()), model=model)


def test_non_finite_draws_are_dropped(stan_model):
    model = stan_model("rejects", {"limit": 10.0})
    points = unconstrained_points(model)
    points[1, 3, 2] = np.nan
    with pytest.warns(NonFiniteScoresWarning, match="1 of 60 draws"):
        scores = stan_scores(posterior_of(points, model.param_names()), model=model)
    assert 3 not in scores["draw"].values


@pytest.mark.parametrize("digits", [6, 8])
def test_rounded_draws_are_repaired(stan_model, digits):
    model = stan_model("structured")
    flat = constrained(model, unconstrained_points(model, draws=100))
    exact = stan_scores(posterior_of(flat, model.param_names()), model=model)
    printed = np.array([float(f"{value:.{digits}g}") for value in flat.flat]).reshape(flat.shape)
    with pytest.warns(UserWarning, match=r"share \(by up to .*sig_figs=18"):
        rounded = stan_scores(posterior_of(printed, model.param_names()), model=model)
    assert rounded.sizes == exact.sizes
    kept = ~exact["unconstrained_parameter"].str.startswith("direction")
    error = np.abs(rounded["gradient"] - exact["gradient"]).isel(unconstrained_parameter=kept)
    assert error.median() < 10.0 ** (1 - digits)


def test_draws_of_another_model_are_refused(stan_model):
    model = stan_model("eight_schools", SCHOOLS)
    other = stan_model("rejects", {"limit": 1.0})
    data = posterior_of(unconstrained_points(other), other.param_names())
    with pytest.raises(ValueError, match=r"\['mu', 'tau', 'z'\].*posterior.*\['x', 'y'\]"):
        stan_scores(data, model=model)


def test_draws_of_another_size_are_refused(stan_model):
    model = stan_model("eight_schools", SCHOOLS)
    small = {key: value[:5] for key, value in SCHOOLS.items() if key != "J"} | {"J": 5}
    other = stan_model("eight_schools", small)
    data = posterior_of(constrained(other, unconstrained_points(other)), other.param_names())
    with pytest.raises(ValueError, match=r"'z' has shape \(5,\).*\(8,\) in the Stan model"):
        stan_scores(data, model=model)


def test_one_thread_and_several_agree(stan_model, monkeypatch):
    model = stan_model("bounds")
    points = unconstrained_points(model)
    several = scores_at(model, points)
    monkeypatch.setattr(model, "model_info", lambda: "STAN_THREADS=false")
    xr.testing.assert_identical(scores_at(model, points), several)


def test_each_draw_is_evaluated_once(stan_model, monkeypatch):
    model = stan_model("eight_schools", SCHOOLS)
    points = unconstrained_points(model, chains=4, draws=50)
    data = posterior_of(constrained(model, points), model.param_names())
    evaluated, gradient = [], model.log_density_gradient

    def counted(point, **settings):
        evaluated.append(np.array(point))
        return gradient(point, **settings)

    monkeypatch.setattr(model, "log_density_gradient", counted)
    scores = stan_scores(data, model=model)
    draws = scores["unconstrained_draw"].values.reshape(200, -1)
    assert len(evaluated) == 200
    np.testing.assert_array_equal(np.unique(evaluated, axis=0), np.unique(draws, axis=0))


def test_model_is_loaded_with_data_from_a_file(stan_libraries, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(stanio.dump_stan_json(SCHOOLS))
    assert load_stan_model(stan_libraries["eight_schools"], path).param_unc_num() == 10
    assert load_stan_model(stan_libraries["eight_schools"], SCHOOLS).param_unc_num() == 10


def test_missing_data_is_explained(stan_libraries):
    with pytest.raises(ValueError, match=r"with no data.*Pass the data"):
        load_stan_model(stan_libraries["eight_schools"])


def test_library_of_another_version_is_explained(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    source, library = tmp_path / "old.cpp", tmp_path / "old_model.so"
    source.write_text(
        'extern "C" { int bs_major_version = 1, bs_minor_version = 0, bs_patch_version = 2; }'
    )
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True)
    with pytest.raises(RuntimeError, match=r"BridgeStan 1\.0\.2.*compile it again"):
        load_stan_model(library)


def test_missing_bridgestan_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "bridgestan", None)
    with pytest.raises(ImportError, match=r"pip install 'az-cv\[stan\]'"):
        load_stan_model("program.stan")


def test_missing_toolchain_is_explained(tmp_path, monkeypatch):
    program = tmp_path / "program.stan"
    program.write_text("parameters { real x; } model { x ~ std_normal(); }")
    monkeypatch.setenv("BRIDGESTAN", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"could not compile .*C\+\+ compiler.*BRIDGESTAN"):
        load_stan_model(program)
    with pytest.raises(FileNotFoundError, match="no Stan program"):
        load_stan_model(tmp_path / "missing.stan")
    monkeypatch.delenv("BRIDGESTAN")
    monkeypatch.setattr("bridgestan.compile.CURRENT_BRIDGESTAN", tmp_path / "sources")
    monkeypatch.setattr("bridgestan.compile.get_bridgestan_src", lambda: pytest.fail("download"))
    with pytest.raises(RuntimeError, match="az_cv downloads nothing"):
        load_stan_model(program)


def test_flatten_agrees_with_stanio(stan_model):
    model = stan_model("layout")
    flat = constrained(model, unconstrained_points(model))
    names = model.param_names()
    np.testing.assert_array_equal(flatten_draws(posterior_of(flat, names), names), flat)
