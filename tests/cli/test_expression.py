import numpy as np
import pytest
import scipy.special
import xarray as xr

import az_cv
from az_cv.cli.expression import ExpressionError, parse_expression


@pytest.fixture(scope="module")
def posterior():
    return az_cv.load_eight_schools()["posterior"].to_dataset().isel(draw=slice(20))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mu + 2 * tau", lambda p: p["mu"] + 2 * p["tau"]),
        ("-mu ** 2 / 4 - +tau % 2", lambda p: -(p["mu"] ** 2) / 4 - p["tau"] % 2),
        ("theta[Choate]", lambda p: p["theta"].sel(school="Choate")),
        ('theta["St. Paul\'s"]', lambda p: p["theta"].sel(school="St. Paul's")),
        ("max(theta)", lambda p: p["theta"].max("school")),
        ("sum(theta, school)", lambda p: p["theta"].sum("school")),
        ("theta - mean(theta)", lambda p: p["theta"] - p["theta"].mean("school")),
        ("exp(log(tau))", lambda p: p["tau"]),
        ("expit(mu)", lambda p: scipy.special.expit(p["mu"])),
        ("maximum(mu, 0)", lambda p: p["mu"].clip(min=0)),
        ("tau > 2", lambda p: p["tau"] > 2),
        ("0 < mu <= 5", lambda p: (p["mu"] > 0) & (p["mu"] <= 5)),
        (
            "tau > 2 and not mu < 0 or mu > 9",
            lambda p: (p["tau"] > 2) & ~(p["mu"] < 0) | (p["mu"] > 9),
        ),
        ("all(theta > 0)", lambda p: (p["theta"] > 0).all("school")),
        (
            "theta[Choate] == max(theta)",
            lambda p: p["theta"].sel(school="Choate") == p["theta"].max("school"),
        ),
    ],
)
def test_expression_means_what_it_says(posterior, text, expected):
    value = parse_expression(text)(posterior)
    xr.testing.assert_allclose(
        value.astype(float).drop_vars("school", errors="ignore"),
        expected(posterior).astype(float).drop_vars("school", errors="ignore"),
    )


def test_elements_are_picked_by_integer_label_and_several_dimensions():
    values = np.arange(2 * 3 * 2 * 4.0).reshape(2, 3, 2, 4)
    posterior = xr.Dataset(
        {"a": (("chain", "draw", "row", "column"), values)},
        coords={"row": [1, 2], "column": [-1, 0, 1, 2]},
    )
    assert np.array_equal(parse_expression("a[2, -1]")(posterior), values[:, :, 1, 0])
    assert parse_expression("a[1]")(posterior).dims == ("chain", "draw", "column")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nu + 1", r"'nu' in 'nu \+ 1': there is no such variable. Available: mu, tau, theta"),
        ("theta[Eton]", r"'school' has no label 'Eton'. Its labels: Choate, Deerfield"),
        ("mu[0]", "it has 0 dimensions besides chain and draw"),
        ("theta[0:2]", "picked by one label"),
        ("sinh(mu)", "the functions are abs, all, any"),
        ("max(theta, row)", r"its dimensions are \['school'\], without \['row'\]"),
        ("exp(mu, tau)", "exp takes 1 arguments, not 2"),
        ("any(theta)", r"such as any\(theta > 0\)"),
        ("mu and tau", "take comparisons"),
        ("mu in tau", "comparisons are < <="),
        ("1 + 1", "uses no variable"),
        ("mu +", "is not an expression: invalid syntax"),
        ("'nu'", "there is no such variable"),
        ("True", "written in digits"),
        ("mu if tau > 1 else 0", "not part of the grammar"),
        ("mu.values", "not part of the grammar"),
        ("(lambda: mu)()", "the functions are"),
        ("__import__('os').system('true')", "the functions are"),
        ("mu.__class__.__bases__[0]", "not part of the grammar"),
        ("[mu for mu in tau]", "not part of the grammar"),
        ("max(theta, dim='school')", "the functions are"),
        ("f'{mu}'", "not part of the grammar"),
        ("mu + 1" + "0" * 400, "too large"),
        ("-" * 998 + "mu", "nested too deeply|cannot be parsed"),
        ("mu" + " + 1" * 400, "at most 1000"),
    ],
)
def test_anything_else_is_refused_with_its_place(posterior, text, message):
    with pytest.raises(ExpressionError, match=message):
        parse_expression(text)(posterior)


def test_towers_of_powers_end_at_once(posterior):
    assert np.isinf(parse_expression("mu * 0 + 9**9**9**9**9")(posterior)).all()
