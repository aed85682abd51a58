"""Figures of Bokeh and Plotly hold the numbers of the Datasets behind them."""

import re
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_base.labels import MapLabeller

import az_cv
from az_cv.plots.marks import log_ticks

matplotlib.use("Agg")
import matplotlib.pyplot as plt

pytest.importorskip("arviz_plots")
bokeh = pytest.importorskip("bokeh")
pytest.importorskip("plotly")
pytest.importorskip("webcolors")  # colours of Plotly, for arviz-plots

both = pytest.mark.parametrize("backend", ["bokeh", "plotly"])


@pytest.fixture(scope="module")
def schools():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    az_cv.summary(data, family="polynomial")
    return data


def plots(collection):
    """Return the plots of a figure, in their order."""
    found = collection.viz["plot"]
    arrays = [found] if isinstance(found, xr.DataArray) else found.data_vars.values()
    return [plot for array in arrays for plot in array.values.flat]


def traces(plot, mode):
    """Return the traces of one plot of a Plotly figure: markers, lines, text."""
    (axis,) = {trace.yaxis for trace in plot.figure.select_traces(row=plot.row, col=plot.col)} - {
        None
    } or {"y"}
    return [t for t in plot.figure.data if t.mode == mode and (t.yaxis or "y") == axis and len(t.x)]


def glyphs(plot, kind):
    """Return data of the glyphs of a kind, those of a legend left out."""
    kinds = {"markers": "Scatter", "lines": "Line", "text": "Text", "none": "VArea"}
    drawn = [r for r in plot.renderers if type(r.glyph).__name__ == kinds[kind]]
    return [r.data_source.data for r in drawn if r.data_source.data]


def drawn(backend, plot, mode):
    """Return x and y of everything of a kind that is drawn."""
    if backend == "bokeh":
        return [(np.array(d["x"]), np.array(d["y"])) for d in glyphs(plot, mode)]
    found = [t for t in traces(plot, mode) if t.x[0] is not None]
    return [(np.array(t.x, float), np.array(t.y, float)) for t in found]


def hover_texts(backend, plot):
    if backend == "bokeh":
        return [list(data["text"]) for data in glyphs(plot, "markers") if "text" in data]
    return [list(t.hovertext) for t in traces(plot, "markers") if t.hovertext is not None]


def written(backend, plot):
    if backend == "bokeh":
        return [text for data in glyphs(plot, "text") for text in data["text"]]
    return [text for trace in traces(plot, "text") for text in trace.text]


def row_labels(backend, plot):
    if backend == "bokeh":
        return list(plot.yaxis[0].major_label_overrides.values())
    return list(plot.figure.layout.yaxis.ticktext)


def title(backend, plot):
    if backend == "bokeh":
        return plot.title.text
    own = next(plot.figure.select_yaxes(row=plot.row, col=plot.col)).plotly_name
    reference = own.replace("axis", "") + " domain"
    texts = [note.text for note in plot.figure.layout.annotations if note.yref == reference]
    return next(text for text in texts if text.strip())


def x_label(backend, plot):
    if backend == "bokeh":
        return plot.xaxis[0].axis_label
    return plot.figure.layout.xaxis.title.text.replace("<br>", "\n")


@both
def test_forest_shows_the_dataset(backend, schools):
    collection = az_cv.plots.plot_forest(schools, backend=backend, relative=False)
    data = az_cv.plots.forest_data(schools)
    xr.testing.assert_identical(collection.data, data)
    (plot,) = plots(collection)
    assert row_labels(backend, plot)[:3] == ["mu", "tau", "theta[Choate]"]

    def column(name):
        parts = [np.atleast_1d(data[v].sel(summary=name)) for v in ("mu", "tau", "theta")]
        return np.concatenate(parts)

    points, bars = drawn(backend, plot, "markers"), drawn(backend, plot, "lines")
    assert len(points) == len(bars) == 2
    kinds = (("plain_", -0.15), ("", 0.15))
    for (x, y), (ends, _), (prefix, offset) in zip(points, bars, kinds):
        mean, half = column(f"{prefix}mean"), 1.96 * column(f"{prefix}mcse_mean")
        np.testing.assert_allclose(x, mean)
        np.testing.assert_allclose(y, np.arange(10) + offset)
        # One line, with a gap after each bar.
        np.testing.assert_allclose(ends.reshape(-1, 3)[:, 0], mean - half)
        np.testing.assert_allclose(ends.reshape(-1, 3)[:, 1], mean + half)
        assert np.isnan(ends.reshape(-1, 3)[:, 2]).all()
    plain, reduced = hover_texts(backend, plot)
    assert plain[0].startswith("mu, plain average: ")
    assert re.fullmatch(r"theta\[Choate\], az_cv: [\d.]+ ± [\d.]+", reduced[2])


@both
def test_relative_forest_is_in_posterior_sds_with_the_means_beside(backend, schools):
    (plot,) = plots(az_cv.plots.plot_forest(schools, var_names="mu", backend=backend))
    mu = schools["cv_summary"]["mu"]
    distance = (mu.sel(summary="plain_mean") - mu.sel(summary="mean")) / mu.sel(summary="sd")
    (plain, _), (reduced, _) = drawn(backend, plot, "markers")
    assert plain == pytest.approx([float(distance)])
    assert reduced == pytest.approx([0.0])
    (text,) = written(backend, plot)
    assert hover_texts(backend, plot)[1] == [f"mu, az_cv: {text}"]
    assert "posterior sd" in x_label(backend, plot)
    # The line at zero: nothing in Plotly where the plot is empty when it is drawn.
    if backend == "plotly":
        assert [shape.x0 for shape in plot.figure.layout.shapes] == [0]
    else:
        assert [line.location for line in plot.center if hasattr(line, "location")][-1] == 0


def legend_names(backend, collection):
    if backend == "bokeh":
        (legend,) = plots(collection)[0].legend
        return [item.label.value for item in legend.items]
    return [t.name for t in collection.get_viz("figure").data if t.showlegend]


@both
def test_kinds_are_told_apart_by_a_legend(backend, schools):
    for collection in (
        az_cv.plots.plot_forest(schools, backend=backend),
        az_cv.plots.plot_running(
            schools, var_names="mu", family="polynomial", num_points=2, backend=backend
        ),
    ):
        assert legend_names(backend, collection) == ["plain average", "az_cv"]


@both
@pytest.mark.parametrize("statistic", ["mean", "sd"])
def test_bars_end_at_the_logarithm_of_the_gain(backend, statistic, schools):
    collection = az_cv.plots.plot_vrf(
        schools, var_names=["mu", "tau"], statistic=statistic, backend=backend
    )
    gains = az_cv.plots.vrf_data(schools, var_names=["mu", "tau"]).sel(summary=f"vrf_{statistic}")
    (plot,) = plots(collection)
    ((ends, rows),) = drawn(backend, plot, "lines")
    expected = np.log10([float(gains["mu"]), float(gains["tau"])])
    np.testing.assert_allclose(ends.reshape(2, 3)[:, :2], [[0, expected[0]], [0, expected[1]]])
    np.testing.assert_allclose(rows.reshape(2, 3)[:, :2], [[0, 0], [1, 1]])
    assert [text[-1] for text in written(backend, plot)] == ["×", "×"]
    assert hover_texts(backend, plot)[0][0] == f"mu: {written(backend, plot)[0]}"


@both
@pytest.mark.parametrize("plot", [az_cv.plots.plot_forest, az_cv.plots.plot_vrf])
def test_rows_are_selected_sorted_cut_and_named(backend, plot, schools):
    collection = plot(schools, sort="gain", max_rows=4, backend=backend)
    (target,) = plots(collection)
    axes = plot(schools, sort="gain", max_rows=4)
    names = [label.get_text() for label in axes.get_yticklabels()]
    plt.close("all")
    assert row_labels(backend, target) == names
    assert x_label(backend, target) == axes.get_xlabel()
    naming = MapLabeller(var_name_map={"mu": "P(x < 3) & more"})
    (target,) = plots(plot(schools, var_names="mu", labeller=naming, backend=backend))
    shown = {"bokeh": "P(x < 3) & more", "plotly": "P(x &lt; 3) &amp; more"}[backend]
    assert row_labels(backend, target) == [shown]


@both
def test_running_estimates_are_drawn_panel_by_panel(backend, schools):
    settings = {"var_names": ["mu", "theta"], "family": "polynomial", "num_points": 3}
    running = az_cv.plots.running_data(schools, **settings)
    collection = az_cv.plots.plot_running(schools, **settings, backend=backend)
    panels = plots(collection)
    assert len(panels) == 9
    andover = running["theta"].isel(school=2)
    panel = collection.get_viz("plot", "theta", school=str(andover["school"].values))
    assert panel is panels[3]
    plain, reduced = drawn(backend, panel, "markers")
    np.testing.assert_allclose(10 ** reduced[0], running["num_draws"])
    np.testing.assert_allclose(reduced[1], andover.sel(summary="mean"))
    np.testing.assert_allclose(plain[1], andover.sel(summary="plain_mean"))
    lines = drawn(backend, panel, "lines")
    assert any(np.allclose(y, andover.sel(summary="mean")) for _, y in lines)
    assert re.match(r"theta\[Phillips Andover\]: [\d.]+ ± ", title(backend, panel))
    assert hover_texts(backend, panel)[0][0].startswith("100 draws, plain average: ")
    upper = andover.sel(summary="mean") + 1.96 * andover.sel(summary="mcse_mean")
    if backend == "bokeh":
        bands = [data["y2"] for data in glyphs(panel, "none")]
    else:
        bands = [trace.y for trace in traces(panel, "none")]
    np.testing.assert_allclose(bands[1], upper)


@both
def test_residuals_and_fitted_values_add_up_to_the_draws(backend, schools):
    collection = az_cv.plots.plot_residuals(schools, var_names=["mu", "tau"], backend=backend)
    parts = az_cv.plots.residuals_data(schools, var_names=["mu", "tau"])
    xr.testing.assert_identical(collection.data, parts)
    for plot, name in zip(plots(collection), ("mu", "tau")):
        ((fitted, residual),) = drawn(backend, plot, "markers")
        np.testing.assert_allclose(fitted, parts[name].sel(part="fitted").values.ravel())
        np.testing.assert_allclose(
            fitted + residual, schools["posterior"][name].values.ravel(), rtol=1e-9
        )
        assert title(backend, plot).startswith(f"{name}: sd ")


@both
def test_quantities_with_equal_labels_are_panels_of_their_own(backend):
    twins = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    posterior = twins["posterior"].to_dataset()
    names = posterior["school"].values.copy()
    names[1] = names[0]
    twins["posterior"] = xr.DataTree(posterior.assign_coords(school=names))
    az_cv.summary(twins, family="polynomial")
    collection = az_cv.plots.plot_residuals(twins, var_names="theta", backend=backend)
    panels = plots(collection)
    assert len(panels) == 8
    assert title(backend, panels[0]).startswith("theta[Choate]")
    assert title(backend, panels[1]).startswith("theta[Choate]")
    one, other = (drawn(backend, panel, "markers")[0][0] for panel in panels[:2])
    assert not np.allclose(one, other)


@both
def test_figures_grow_with_their_labels_and_take_a_size(backend, schools):
    def size(**options):
        collection = az_cv.plots.plot_vrf(schools, backend=backend, **options)
        (plot,) = plots(collection)
        own = plot if backend == "bokeh" else plot.figure.layout
        return np.array([own.width, own.height]), row_labels(backend, plot)

    few, _ = size(var_names=["mu", "tau", "theta"], max_rows=4)
    all_rows, _ = size()
    assert all_rows[1] > few[1]
    long = MapLabeller(var_name_map={"mu": "the_effect_of_the_intervention_on_the_recovery_rate"})
    wide, (label,) = size(var_names="mu", labeller=long)
    narrow, _ = size(var_names="mu")
    assert wide[0] > narrow[0] + 200
    assert ("\n" if backend == "bokeh" else "<br>") in label
    np.testing.assert_allclose(size(figsize=(5, 3))[0], (500, 300))


@both
def test_figures_are_saved_as_pages(backend, schools, tmp_path):
    collection = az_cv.plots.plot_forest(schools, backend=backend)
    page = tmp_path / "forest.html"
    options = {"include_plotlyjs": False}
    if backend == "bokeh":
        options = {"resources": bokeh.resources.CDN, "title": "forest"}
    collection.savefig(page, **options)
    assert "theta[Phillips Andover]" in page.read_text(encoding="utf-8")


@both
def test_many_panels_are_refused(backend):
    parts = {f"x{k}": lambda post: post["mu"] for k in range(41)}
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    az_cv.summary(data, parts, family="polynomial")
    with pytest.raises(ValueError, match="41 panels do not fit"):
        az_cv.plots.plot_residuals(data, parts, backend=backend)


@both
def test_a_missing_backend_is_named(backend, schools, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(f"arviz_plots.backend.{backend}")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == backend]:
        monkeypatch.setitem(sys.modules, name, None)
    message = rf"{backend}[\w.]* is not installed: pip install 'az-cv\[{backend}\]'"
    with pytest.raises(ImportError, match=message):
        az_cv.plots.plot_forest(schools, backend=backend)


@pytest.fixture(scope="module")
def history():
    """Two families, two folds; the second family trained for fewer epochs."""
    folds = [
        pd.DataFrame(
            {
                "member": member,
                "fold": fold,
                "epoch": np.arange(1, last + 1),
                "loss": (1.0 + fold) / np.arange(1, last + 1),
                "held_out_variance": (2.0 + fold) / np.arange(1, last + 1) - shift,
            }
        )
        for member, last, shift in (("network", 5, 0.0), ("order 1", 3, 1.0))
        for fold in (0, 1)
    ]
    return pd.concat(folds)


@both
def test_training_is_drawn_fold_by_fold_with_the_average(backend, history):
    collection = az_cv.plots.plot_training(history, backend=backend)
    curves = az_cv.plots.training_data(history)
    xr.testing.assert_identical(collection.data, curves)
    loss, held_out = plots(collection)
    assert title(backend, loss) == "training loss"
    lines = [y for _, y in drawn(backend, loss, "lines")]
    assert len(lines) == 2 * (2 + 1)
    np.testing.assert_allclose(10 ** lines[1], 2.0 / np.arange(1, 6))
    np.testing.assert_allclose(10 ** lines[2], 1.5 / np.arange(1, 6))
    np.testing.assert_allclose(10 ** lines[5], 1.5 / np.arange(1, 4))
    assert hover_texts(backend, loss)[0][0] == "epoch 1, network: 1.5"
    # Some values are negative, and have no logarithms.
    lines = [y for _, y in drawn(backend, held_out, "lines")]
    np.testing.assert_allclose(lines[3], 2.0 / np.arange(1, 4) - 1)
    assert legend_names(backend, collection) == ["network", "order 1"]


@both
def test_stein_identities_are_on_a_scale_that_any_disaster_fits(backend):
    z = np.array([[0.5, 2.0], [-400.0, 40.0]])
    table = pd.DataFrame(z, columns=["z_mean_score", "z_slope"], index=["a", "b"])
    report = az_cv.diagnostics.ScoreCheck(table, "fail", ("Wrong.",), 1e-9, 1.0)
    collection = az_cv.plots.plot_stein_check(report, backend=backend)
    xr.testing.assert_identical(collection.data, az_cv.plots.stein_check_data(report))
    (plot,) = plots(collection)
    assert row_labels(backend, plot) == ["a", "b"]
    assert title(backend, plot) == "Stein identities: fail"
    assert "shaded: 2 standard errors" in x_label(backend, plot)
    # Those within the limit, then those beyond it, for either identity.
    points = drawn(backend, plot, "markers")
    np.testing.assert_allclose([x[0] for x, _ in points], [0.3125, -4.5, 1.25, 3.5])
    np.testing.assert_allclose([y[0] for _, y in points], [0, 1, 0, 1])
    assert [text for (text,) in hover_texts(backend, plot)] == [
        "a, mean_score: 0.50",
        "b, mean_score: -400.00",
        "a, slope: 2.00",
        "b, slope: 40.00",
    ]
    assert legend_names(backend, collection) == ["mean_score", "slope"]


@both
def test_structure_is_drawn_in_two_colours(backend, schools):
    found = az_cv.structure(schools)
    collection = az_cv.plots.plot_structure(found, rows=4, backend=backend)
    shown = az_cv.plots.structure_data(found, rows=4)
    xr.testing.assert_identical(collection.data, shown)
    (plot,) = plots(collection)
    assert row_labels(backend, plot)[0] == "tau_log__"
    assert shown["is_global"].values.tolist() == [True, False, False, False]
    (top, row), (others, rows) = drawn(backend, plot, "lines")
    np.testing.assert_allclose(top[1], shown["influence"][0])
    np.testing.assert_allclose(others.reshape(-1, 3)[:, 1], shown["influence"][1:])
    assert row[0] == 0
    np.testing.assert_allclose(rows.reshape(-1, 3)[:, 0], [1, 2, 3])
    assert hover_texts(backend, plot)[0][0].startswith("tau_log__: ")
    assert "influence" in x_label(backend, plot)
    assert legend_names(backend, collection) == ["global", "other"]


def test_legends_of_bokeh_stand_outside_of_panels_of_equal_size(history, schools):
    running = az_cv.plots.plot_running(
        schools, var_names=["mu", "tau"], family="polynomial", num_points=2, backend="bokeh"
    )
    long = history.assign(member=history["member"] + ", with a long description of its layers")
    for collection, legend_height in (
        (running, 28),
        (az_cv.plots.plot_training(long, backend="bokeh"), 48),
    ):
        first, second = plots(collection)
        assert first.above[-1] is first.legend[0]
        assert first.height == second.height + legend_height
        assert second.align == "end"


def test_ticks_of_logarithms():
    positions, texts = log_ticks(1.0, 85_000.0)
    assert texts == ["1", "10", "100", "1,000", "10,000"]
    np.testing.assert_allclose(positions, range(5))
    assert log_ticks(1.0, 10.0)[1] == ["1", "2", "5", "10"]
    assert len(log_ticks(1.0, 1e30)[1]) <= 8
    # Less than a decade has ticks of its own.
    assert log_ticks(110.0, 190.0)[1] == ["120", "140", "160", "180"]
    assert log_ticks(3.0, 3.0)[1] == ["3"]
    assert log_ticks(0.0005, 0.2)[1] == ["0.001", "0.01", "0.1"]
