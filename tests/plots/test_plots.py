"""Structure of the figures; what they look like was judged by eye."""

import builtins
import sys
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import az_cv
from az_cv.plots.canvas import ALERT_COLOUR, REDUCED_COLOUR, wrapped

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.text import Text


@pytest.fixture(scope="module")
def schools():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    az_cv.summary(data, family="polynomial")
    return data


@pytest.fixture(scope="module")
def result():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    return az_cv.fit(data, family="polynomial")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.mark.parametrize("plot", [az_cv.plots.plot_forest, az_cv.plots.plot_vrf])
def test_rows_are_those_of_the_summary(plot, schools):
    ax = plot(schools)
    assert labels(ax)[:3] == ["mu", "tau", "theta[Choate]"]
    assert len(labels(ax)) == 10
    # The first row is on top, as in the table.
    assert ax.yaxis_inverted()


@pytest.mark.parametrize("plot", [az_cv.plots.plot_forest, az_cv.plots.plot_vrf])
def test_result_and_attached_groups_draw_alike(plot, schools, result):
    assert labels(plot(schools)) == labels(plot(result))


@pytest.mark.parametrize("plot", [az_cv.plots.plot_forest, az_cv.plots.plot_vrf])
def test_selection_labeller_axes_and_size(plot, result):
    from arviz_base.labels import MapLabeller

    _, ax = plt.subplots()
    drawn = plot(
        result, var_names="mu", labeller=MapLabeller(var_name_map={"mu": "average effect"}), ax=ax
    )
    assert drawn is ax
    assert labels(ax) == ["average effect"]
    chosen = plot(result, var_names=["theta"], coords={"school": ["Choate"]}, figsize=(3, 2))
    assert labels(chosen) == ["theta[Choate]"]
    assert tuple(chosen.figure.get_size_inches()) == (3, 2)


@pytest.mark.parametrize("plot", [az_cv.plots.plot_forest, az_cv.plots.plot_vrf])
def test_rows_are_sorted_and_cut_on_request(plot, result):
    ax = plot(result, sort="gain", max_rows=4)
    names = result.estimates["theta"]["school"].values
    gains = {
        "mu": float(result.estimates["mu"].sel(summary="vrf_mean")),
        "tau": float(result.estimates["tau"].sel(summary="vrf_mean")),
    } | {
        f"theta[{name}]": float(result.estimates["theta"].sel(summary="vrf_mean", school=name))
        for name in names
    }
    assert labels(ax) == sorted(gains, key=lambda name: -gains[name])[:4]
    assert ax.get_xlabel().endswith("\n6 more rows are not shown")
    with pytest.raises(ValueError, match="sort is 'name'"):
        plot(result, sort="name")
    with pytest.raises(ValueError, match="max_rows must be a positive integer"):
        plot(result, max_rows=0)


def overlap(one, other):
    return one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1


def shown_texts(figure):
    """Return the texts of a figure, without those of ticks outside of the limits of an axis."""
    hidden = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not low <= tick.get_loc() <= high:
                    hidden |= {tick.label1, tick.label2}
    return [
        text
        for text in figure.findobj(plt.Text)
        if text.get_text().strip() and text.get_visible() and text not in hidden
    ]


def assert_texts_are_apart_and_inside(figure):
    """No text is cut off by the edge of the figure, and none lies on another."""
    figure.canvas.draw()
    boxes = []
    for text in shown_texts(figure):
        box, edge = text.get_window_extent(), figure.bbox
        inside = box.x0 > -1 and box.y0 > -1 and box.x1 < edge.x1 + 1 and box.y1 < edge.y1 + 1
        assert inside, text.get_text()
        if text.get_text().endswith("\n"):
            # The last line of a long title is empty: the note at its right stands there.
            line = box.height / (text.get_text().count("\n") + 1)
            box = box.from_extents(box.x0, box.y0 + line, box.x1, box.y1)
        for other, words in boxes:
            assert not overlap(box.padded(-1), other.padded(-1)), (text.get_text(), words)
        boxes.append((box, text.get_text()))


@pytest.fixture(scope="module")
def many():
    """A posterior of 120 quantities with long names, with results attached."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 120, 120))
    wards = [f"St. Somebody's General Hospital, ward {k}, county of Somewhere" for k in range(120)]
    name = "the_effect_of_the_intervention_on_the_log_odds_of_recovery"
    posterior = xr.Dataset(
        {name: (("chain", "draw", "ward"), np.exp(x / 2) * 10.0 ** rng.integers(-4, 5, 120))},
        coords={"ward": wards},
    )
    names = [f"{name}[{ward}]" for ward in wards]
    scores = az_cv.scores_dataset(x, -x, parameter_names=names)
    data = xr.DataTree.from_dict({"posterior": posterior, "cv_scores": scores})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        az_cv.summary(data, family="polynomial")
    return data


@pytest.mark.parametrize(
    "plot",
    [
        az_cv.plots.plot_forest,
        az_cv.plots.plot_vrf,
        lambda data: az_cv.plots.plot_forest(data, sort="gain", max_rows=15),
        lambda data: az_cv.plots.plot_vrf(data, sort="gain", max_rows=15),
        lambda data: az_cv.plots.plot_forest(data, max_rows=15, relative=False),
        az_cv.plots.plot_stein_check,
        lambda data: az_cv.plots.plot_structure(az_cv.structure(data), rows=30),
    ],
)
def test_long_names_of_many_rows_are_neither_cut_nor_overprinted(plot, many):
    assert_texts_are_apart_and_inside(plot(many).figure)


@pytest.mark.parametrize(
    "plot",
    [
        az_cv.plots.plot_residuals,
        lambda data, **o: az_cv.plots.plot_running(data, family="polynomial", num_points=2, **o),
    ],
)
def test_long_names_above_panels_are_neither_cut_nor_overprinted(plot, many):
    wards = many["posterior"]["ward"].values[:4]
    axes = plot(many, coords={"ward": wards})
    assert_texts_are_apart_and_inside(axes[0].figure)


def test_wrapped_labels_keep_every_character():
    label = "theta[" + 30 * "x" + ", a b_c/d]"
    for characters in (5, 12, 80):
        lines = wrapped(label, characters).split("\n")
        assert max(map(len, lines)) <= characters
        assert "".join(lines).replace(" ", "") == label.replace(" ", "")


def test_the_data_behind_a_figure_is_a_dataset(schools, result):
    drawn = az_cv.plots.forest_data(schools, var_names="theta", coords={"school": ["Choate"]})
    assert dict(drawn["theta"].sizes)["school"] == 1
    # With the interval, which a fit does not have.
    assert set(result.estimates["summary"].values) < set(drawn["summary"].values)
    running = az_cv.plots.running_data(schools, var_names=["mu"], family="polynomial", num_points=2)
    axes = az_cv.plots.plot_running(schools, var_names=["mu"], family="polynomial", num_points=2)
    line = axes[0].lines[1]
    np.testing.assert_array_equal(line.get_xdata(), running["num_draws"])
    np.testing.assert_array_equal(line.get_ydata(), running["mu"].sel(summary="mean"))


def test_forest_shows_both_means_with_their_errors(result):
    ax = az_cv.plots.plot_forest(result, var_names="mu", relative=False)
    plain, reduced = ax.containers
    mu = result.estimates["mu"]
    assert plain[0].get_xdata() == pytest.approx([float(mu.sel(summary="plain_mean"))])
    assert reduced[0].get_xdata() == pytest.approx([float(mu.sel(summary="mean"))])
    (segment,) = reduced[2][0].get_segments()
    half = 1.96 * float(mu.sel(summary="mcse_mean"))
    assert segment[1, 0] - segment[0, 0] == pytest.approx(2 * half)


def test_relative_forest_is_in_posterior_sds(result):
    ax = az_cv.plots.plot_forest(result, var_names="mu")
    mu = result.estimates["mu"]
    distance = (mu.sel(summary="plain_mean") - mu.sel(summary="mean")) / mu.sel(summary="sd")
    plain, reduced = ax.containers
    assert plain[0].get_xdata() == pytest.approx([float(distance)])
    assert reduced[0].get_xdata() == pytest.approx([0.0])
    assert "posterior sd" in ax.get_xlabel()


@pytest.mark.parametrize("statistic", ["mean", "sd"])
def test_bars_end_at_the_gain(result, statistic):
    ax = az_cv.plots.plot_vrf(result, var_names=["mu", "tau"], statistic=statistic)
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    expected = [
        float(result.estimates[name].sel(summary=f"vrf_{statistic}")) for name in ("mu", "tau")
    ]
    assert ends == pytest.approx(expected)


def test_unknown_statistic_is_refused(result):
    with pytest.raises(ValueError, match=r"statistic is 'median'.*'mean', 'sd'"):
        az_cv.plots.plot_vrf(result, statistic="median")


def test_constant_quantities_can_be_drawn():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    fn = {"mu": lambda post: post["mu"], "constant": lambda post: 0 * post["mu"] + 2}
    result = az_cv.fit(data, fn, family="polynomial")
    assert labels(az_cv.plots.plot_forest(result)) == ["mu", "constant"]
    assert labels(az_cv.plots.plot_vrf(result)) == ["mu", "constant"]


def test_running_estimates_end_at_the_fit_to_all_draws(schools):
    (ax,) = az_cv.plots.plot_running(schools, var_names="mu", family="polynomial", num_points=4)
    plain, reduced = ax.lines
    used = plain.get_xdata()
    assert used[0] == 4 * 25
    assert used[-1] == 4 * 60
    mu = schools["posterior"]["mu"]
    assert plain.get_ydata()[-1] == pytest.approx(float(mu.mean()))
    assert plain.get_ydata()[0] == pytest.approx(float(mu.isel(draw=slice(25)).mean()))
    fit = az_cv.fit(schools, family="polynomial", var_names=["mu"])
    assert reduced.get_ydata()[-1] == pytest.approx(float(fit.estimates["mu"].sel(summary="mean")))


def test_running_estimates_of_a_function(schools):
    axes = az_cv.plots.plot_running(
        schools,
        {"largest": lambda post: post["theta"].max("school")},
        family="polynomial",
        num_points=2,
    )
    assert [ax.get_title(loc="left") for ax in axes] == ["largest"]


def test_long_and_short_names_have_titles_of_one_size(schools):
    fn = {"mu": lambda post: post["mu"], "a name that needs some room": lambda post: post["tau"]}
    axes = az_cv.plots.plot_running(schools, fn, family="polynomial", num_points=2)
    titles = [text for ax in axes for text in ax.findobj(Text) if text.get_text().strip() in fn]
    assert len(titles) == 2
    assert titles[0].get_fontsize() == titles[1].get_fontsize()


@pytest.mark.parametrize("num_points", [1, 2.5])
def test_running_needs_two_points(schools, num_points):
    with pytest.raises(ValueError, match="num_points must be an integer of at least 2"):
        az_cv.plots.plot_running(schools, num_points=num_points)


def test_residuals_and_fitted_values_add_up_to_the_draws(schools):
    axes = az_cv.plots.plot_residuals(schools, var_names=["mu", "tau"])
    assert [ax.get_title(loc="left") for ax in axes] == ["mu", "tau"]
    points = axes[0].lines[0]
    total = points.get_xdata() + points.get_ydata()
    assert np.allclose(total, schools["posterior"]["mu"].values.ravel())
    assert np.std(points.get_ydata()) < np.std(total) / 3


def test_residuals_of_another_function_are_refused(schools):
    with pytest.raises(ValueError, match=r"not of \['other'\]. Pass the fn"):
        az_cv.plots.plot_residuals(schools, {"other": lambda post: post["mu"]})


def test_residuals_need_the_plain_draws(result):
    with pytest.raises(TypeError, match=r"Attach it, result.attach\(data\)"):
        az_cv.plots.plot_residuals(result)


def test_missing_results_say_how_to_make_them():
    data = az_cv.load_eight_schools()
    with pytest.raises(ValueError, match=r"Call az_cv.summary\(data\) first"):
        az_cv.plots.plot_forest(data)


def test_number_of_axes_is_checked(schools):
    _, axes = plt.subplots(1, 3)
    with pytest.raises(ValueError, match="ax holds 3 axes; 2 are needed"):
        az_cv.plots.plot_residuals(schools, var_names=["mu", "tau"], ax=axes)


def history():
    epochs = np.arange(1, 6)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "epoch": epochs,
                    "fold": fold,
                    "loss": 1.0 / epochs,
                    "held_out_variance": (1.0 + fold) / epochs,
                }
            )
            for fold in range(3)
        ]
    )


def test_training_has_a_line_per_fold_and_their_average():
    _, held_out = az_cv.plots.plot_training(history())
    assert len(held_out.lines) == 4
    assert held_out.lines[-1].get_ydata()[0] == pytest.approx(2.0)
    assert held_out.get_yscale() == "log"


def test_training_draws_families_apart_and_the_last_start_of_each():
    given_up = history().assign(loss=1e6, restart=0)
    record = pd.concat([given_up, history().assign(restart=1)])
    both = pd.concat([record.assign(member="network"), record.assign(member="polynomial order 1")])
    loss, _ = az_cv.plots.plot_training(both)
    assert loss.get_legend_handles_labels()[1] == ["network", "polynomial order 1"]
    assert len(loss.lines) == 2 * (3 + 1)
    assert max(line.get_ydata().max() for line in loss.lines) == pytest.approx(1.0)


@pytest.mark.parametrize("names", [["network", "order 1"], [3 * "a network of long name, ", "b"]])
def test_legends_stand_outside_of_the_panels(names):
    record = pd.concat([history().assign(member=name) for name in names])
    axes = az_cv.plots.plot_training(record)
    (legend,) = axes[0].figure.legends
    axes[0].figure.canvas.draw()
    box = legend.get_window_extent()
    assert not any(overlap(box, panel.get_window_extent()) for panel in axes)
    assert [text.get_text() for text in legend.get_texts()] == names
    assert_texts_are_apart_and_inside(axes[0].figure)
    _, given = plt.subplots(1, 2)
    assert az_cv.plots.plot_training(record, ax=given)[0].get_legend() is not None


def test_training_of_an_exact_fit_says_there_is_none(result):
    with pytest.raises(ValueError, match="exact solvers do not train"):
        az_cv.plots.plot_training(result)


def test_training_history_needs_its_columns():
    with pytest.raises(ValueError, match=r"The history lacks \['loss'\]"):
        az_cv.plots.plot_training(history().drop(columns="loss"))


def test_data_of_training_hold_the_last_start_and_gaps():
    record = pd.concat([history().assign(loss=1e6, restart=0), history().assign(restart=1)])
    short = record[(record["epoch"] <= 2) & (record["fold"] == 1)].assign(member="b")
    curves = az_cv.plots.training_data(pd.concat([short, record.assign(member="a")]))
    assert curves["member"].values.tolist() == ["b", "a"]  # in the order of the history
    assert dict(curves.sizes) == {"member": 2, "fold": 3, "epoch": 5}
    assert float(curves["loss"].max()) == pytest.approx(1.0)
    assert int(curves["loss"].sel(member="b").notnull().sum()) == 2


def check(z):
    table = pd.DataFrame(
        {"mean_score": z, "z_mean_score": z, "slope": z, "z_slope": np.ones(len(z)), "r_hat": z},
        index=[f"x_{i}" for i in range(len(z))],
    )
    return az_cv.diagnostics.ScoreCheck(table, "fail", ("Wrong.",), 1e-9, 1.0)


def test_failed_identities_stand_out():
    ax = az_cv.plots.plot_stein_check(check(np.array([0.3, -50.0])))
    assert labels(ax) == ["x_0", "x_1"]
    score, slope = ax.collections[-2:]
    rgba = matplotlib.colors.to_rgba
    assert tuple(score.get_facecolors()[1]) == rgba(ALERT_COLOUR)
    assert tuple(slope.get_facecolors()[1]) == rgba(REDUCED_COLOUR)
    low, high = ax.get_xlim()
    assert low < -50
    assert high > 50
    assert ax.get_title(loc="left") == "Stein identities: fail"


def test_check_of_many_parameters_shows_the_worst():
    ax = az_cv.plots.plot_stein_check(check(np.linspace(0, 3, 100)))
    assert len(labels(ax)) == 40
    assert "x_99" in labels(ax)
    assert "the 40 worst of 100" in ax.get_xlabel()


def test_data_of_the_check_are_its_z_scores():
    report = check(np.array([0.3, -50.0]))
    data = az_cv.plots.stein_check_data(report)
    assert data.attrs["verdict"] == "fail"
    np.testing.assert_array_equal(data["z"].sel(identity="mean_score"), [0.3, -50.0])
    assert data["unconstrained_parameter"].values.tolist() == ["x_0", "x_1"]


def test_data_of_the_structure_are_its_influence(schools):
    found = az_cv.structure(schools)
    data = az_cv.plots.structure_data(found)
    np.testing.assert_array_equal(data["influence"], found.influence)
    assert data["unconstrained_parameter"].values[data["is_global"].values].tolist() == found.top
    with pytest.raises(ValueError, match="rows must be at least 1; it is 0"):
        az_cv.plots.structure_data(found, rows=0)


def test_without_matplotlib_the_message_names_the_extra(result, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'az-cv\[plots\]'"):
        az_cv.plots.plot_forest(result)


@pytest.mark.parametrize(
    "plot",
    [
        az_cv.plots.plot_forest,
        az_cv.plots.plot_vrf,
        az_cv.plots.plot_running,
        az_cv.plots.plot_residuals,
        az_cv.plots.plot_training,
        az_cv.plots.plot_stein_check,
        az_cv.plots.plot_structure,
    ],
)
def test_backends_are_checked_before_anything_is_computed(plot, schools):
    with pytest.raises(ValueError, match=r"backend is 'gnuplot'. Choose from \['matplotlib', 'bok"):
        plot(schools, backend="gnuplot")
    with pytest.raises(ValueError, match=r"ax takes Axes of matplotlib, and backend='plotly'"):
        plot(schools, backend="plotly", ax=plt.gca())


@pytest.mark.parametrize("backend", ["bokeh", "plotly"])
def test_without_arviz_plots_the_message_names_the_extra(backend, result, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    with pytest.raises(ImportError, match=rf"arviz_plots is not .* 'az-cv\[{backend}\]'"):
        az_cv.plots.plot_forest(result, backend=backend)
