"""The `az-cv` command."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_cv.cli.arguments import read_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

EXAMPLES = """\
examples:
  az-cv demo                                    the eight schools, nothing else needed
  az-cv summary trace.nc                        a trace that holds its gradients
  az-cv summary trace.zarr --var-names mu tau --output table.csv
  az-cv summary trace.nc --fn 'max(theta)' --fn 'theta[Choate] > theta[Deerfield]'
  az-cv summary output-*.csv --exe ./model --data data.json
  az-cv check trace.nc                          do the gradients belong to the draws?
  az-cv plot trace.nc --kind running --var-names mu --output running.png

exit status: 0 done, 1 something is wrong with the input, 2 the command is misspelt
"""
FN_HELP = """\
a function of the variables, may be repeated: arithmetic, comparisons (their mean is a probability),
and, or, not, theta[label], exp log sqrt abs expit ... of each element, and max min mean sum prod
any all over the dimensions besides chain and draw"""
KINDS = ("forest", "vrf", "running", "residuals", "check")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Defaults to those of the process.

    Returns
    -------
    int
        0 when the command is done, 1 when something is wrong with its input or it is interrupted.

    Raises
    ------
    SystemExit
        With status 0 after ``--help`` and ``--version``, with 2 where the command is misspelt.

    See Also
    --------
    az_cv.summary : The same from Python.

    Examples
    --------
    >>> from az_cv.cli import main
    >>> main(["--version"])
    Traceback (most recent call last):
    SystemExit: 0
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = read_arguments(parser, given)
    _print_anything()
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning  # restored by catch_warnings
        try:
            return int(options.run(options))
        except BrokenPipeError:  # `az-cv summary ... | head`
            sys.stderr.close()
            return 1
        except KeyboardInterrupt:
            return _fail("interrupted")
        except Exception as error:
            if options.debug:
                raise
            return _fail(_message(error))


def _print_anything() -> None:
    """Write letters that the terminal cannot show as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    import az_cv
    from az_cv.engine.choices import FAMILIES

    parser = argparse.ArgumentParser(
        prog="az-cv",
        description="Posterior summaries with smaller Monte Carlo errors, from the same draws.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"az-cv {az_cv.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show tracebacks")
    trace = argparse.ArgumentParser(add_help=False, parents=[common])
    trace.add_argument(
        "files", nargs="*", metavar="FILE", help="FILE.nc, FILE.zarr, or CmdStan's CSV files"
    )
    stan = trace.add_argument_group("Stan, with CSV files and no diagnostic files beside them")
    stan.add_argument("--exe", metavar="FILE", help="the compiled model")
    stan.add_argument("--data", metavar="FILE", help="the data, JSON")
    stan.add_argument("--stan-file", metavar="FILE", help="the Stan program, for BridgeStan")
    choice = argparse.ArgumentParser(add_help=False)
    choice.add_argument("--fn", action="append", metavar="EXPR", help=FN_HELP)
    choice.add_argument("--var-names", nargs="+", metavar="NAME", help="only these variables")
    choice.add_argument(
        "--filter-vars", choices=("like", "regex"), help="how --var-names are meant, as in ArviZ"
    )
    choice.add_argument("--family", choices=FAMILIES, default="auto")
    choice.add_argument(
        "--max-time", type=float, metavar="SECONDS", help="for the fits; what has no time is named"
    )
    choice.add_argument(
        "--force", action="store_true", help="let --output replace what az-cv did not write"
    )

    demo = commands.add_parser(
        "demo", parents=[common], help="summarise a posterior of az_cv's own"
    )
    demo.set_defaults(run=_demo)
    summary = commands.add_parser(
        "summary",
        parents=[trace, choice],
        help="print or write a summary",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    summary.add_argument(
        "--output",
        metavar="FILE",
        help="write the table (.csv .html .json .txt), or the trace with the results (.nc .zarr)",
    )
    summary.add_argument("--json", action="store_true", help="print JSON, every digit")
    summary.add_argument(
        "--full", action="store_true", help="every column of ArviZ's table; CSV and JSON have them"
    )
    summary.set_defaults(run=_summary)
    check = commands.add_parser(
        "check", parents=[trace], help="check that the gradients belong to the draws"
    )
    check.set_defaults(run=_check)
    plot = commands.add_parser("plot", parents=[trace, choice], help="draw a figure")
    plot.add_argument("--kind", choices=KINDS, default="forest")
    plot.add_argument(
        "--output", metavar="FILE", help="default: beside the trace, named after it and the kind"
    )
    plot.set_defaults(run=_plot)
    return parser


def _demo(options: argparse.Namespace) -> int:
    """Print the summary of eight schools, and plain averages beside the corrected ones."""
    import az_cv
    from az_cv.datasets import EIGHT_SCHOOLS_MEANS
    from az_cv.display.digits import gain_text, with_error

    data = az_cv.load_eight_schools()
    table = az_cv.summary(data)
    print("Eight schools, 4 chains x 1,000 draws: az_cv.summary(data)\n")
    print(table)
    estimates = data["cv_summary"].to_dataset()
    print(f"\n{'':16}{'plain average':20}{'az_cv':24}exact")
    for label, exact in EIGHT_SCHOOLS_MEANS.items():
        name, _, school = label.rstrip("]").partition("[")
        found = estimates[name]
        found = found.sel(school=school) if school else found
        value = {key: float(found.sel(summary=key)) for key in found["summary"].values}
        plain = with_error(value["plain_mean"], value["plain_mcse_mean"])
        print(f"{label:16}{plain:20}{with_error(value['mean'], value['mcse_mean']):24}{exact}")
    gain = gain_text(float(table["vrf_mean"].median()))
    print(
        "\n± is one Monte Carlo standard error. vrf is the variance reduction factor. Its median\n"
        f"here is {gain}: plain averages would need {gain} times as many draws for these errors."
    )
    return 0


def _summary(options: argparse.Namespace) -> int:
    from az_cv.cli.files import (
        TABLE_SUFFIXES,
        TRACE_SUFFIXES,
        require_output,
        require_replaceable,
        table_json,
        write_result,
    )

    output = Path(options.output) if options.output else None
    suffix = output.suffix.lower() if output else ""
    if output:
        suffixes = TABLE_SUFFIXES + TRACE_SUFFIXES
        require_output(output, suffixes, options.files, force=options.force)
    data, scores = _read(options)
    if output and suffix in TRACE_SUFFIXES:
        require_replaceable(output, data, force=options.force)
    exact = options.json or suffix in (".csv", ".json")
    kind = "full" if exact or options.full else "stats"
    table = _table(data, scores, options, round_to="none" if exact else None, kind=kind)
    is_shown = options.json or not output or suffix in TRACE_SUFFIXES
    try:
        if output:
            write_result(table, data, output)
    except Exception:
        is_shown = True  # what was computed is not lost with the file
        raise
    finally:
        if is_shown:
            print(table_json(table) if options.json else table)
    # A row without a number is something wrong with the input.
    return int(table["mean"].isna().any())


def _check(options: argparse.Namespace) -> int:
    import az_cv

    data, scores = _read(options)
    report = az_cv.check_scores(data, scores)
    print(report)
    return 1 if report.problems else 0


def _plot(options: argparse.Namespace) -> int:
    import az_cv
    from az_cv.cli.files import FIGURE_MARK, FIGURE_SUFFIXES, require_output
    from az_cv.containers.replacing import replacing
    from az_cv.plots.canvas import import_pyplot

    output = (
        Path(options.output)
        if options.output
        else Path(options.files[0]).with_suffix(f".{options.kind}.png")
    )
    require_output(output, FIGURE_SUFFIXES, options.files, force=options.force)
    pyplot = import_pyplot()
    pyplot.switch_backend("agg")
    data, scores = _read(options)
    functions = _functions(options)
    names = {"var_names": options.var_names, "filter_vars": options.filter_vars}
    if options.kind == "check":
        drawn: Any = az_cv.plots.plot_stein_check(data, scores)
    elif options.kind == "running":
        drawn = az_cv.plots.plot_running(
            data, functions, scores=scores, family=options.family, **names
        )
    else:
        _table(data, scores, options)
        if options.kind == "residuals":
            drawn = az_cv.plots.plot_residuals(data, functions)
        else:
            draw = az_cv.plots.plot_forest if options.kind == "forest" else az_cv.plots.plot_vrf
            drawn = draw(data)
    figure = drawn.figure if hasattr(drawn, "figure") else drawn[0].figure
    author = "Software" if output.suffix.lower() == ".png" else "Creator"
    with replacing(output) as staged:
        figure.savefig(staged, dpi=150, metadata={author: FIGURE_MARK})
    pyplot.close(figure)
    print(output)
    return 0


def _read(options: argparse.Namespace) -> tuple[Any, Any]:
    from az_cv.cli.files import read_trace

    return read_trace(
        options.files, exe_file=options.exe, data_file=options.data, stan_file=options.stan_file
    )


def _functions(options: argparse.Namespace) -> Any:
    """Return the functions of ``--fn`` under their own text, or None for all variables."""
    from az_cv.cli.expression import parse_expression

    if options.fn is None:
        return None
    return {text.strip(): parse_expression(text) for text in options.fn}


def _table(
    data: Any, scores: Any, options: argparse.Namespace, round_to: Any = None, kind: Any = "full"
) -> pd.DataFrame:
    import az_cv

    return az_cv.summary(
        data,
        _functions(options),
        scores=scores,
        var_names=options.var_names,
        filter_vars=options.filter_vars,
        family=options.family,
        max_time=options.max_time,
        round_to=round_to,
        kind=kind,
    )


def _message(error: Exception) -> str:
    """Return what an exception says, on one line, with options in place of arguments."""
    from az_cv.cli.files import with_options

    # str() of a KeyError adds quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return with_options(" ".join(text.split())) or type(error).__name__


def _fail(message: str) -> int:
    print(f"az-cv: error: {message}", file=sys.stderr)
    return 1


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    print(f"az-cv: warning: {' '.join(str(message).split())}", file=sys.stderr)
