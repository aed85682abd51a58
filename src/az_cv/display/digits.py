"""Numbers as people read them: as many digits as the error allows, gains with two."""

from __future__ import annotations

import math

import numpy as np

MOST_DECIMALS = 12  # beyond these a number is clearer with an exponent


def decimals(error: float) -> int | None:
    """Return the decimals that show two digits of an error, ``None`` where nothing limits them.

    They are negative for errors of 100 and more.

    Examples
    --------
    >>> decimals(0.0123), decimals(456.0), decimals(0.0)
    (3, -1, None)
    """
    if not (np.isfinite(error) and error > 0):
        return None
    return 1 - math.floor(math.log10(error))


def gain_text(gain: float) -> str:
    """Return a gain with two digits.

    Examples
    --------
    >>> [gain_text(gain) for gain in (1.0, 3.14159, 822.7, 15300.0, 2.3e9, float("nan"))]
    ['1.0', '3.1', '820', '15,000', '2.3e+09', '–']
    """
    if not np.isfinite(gain):
        return "–"
    shown = float(f"{gain:.2g}")
    if shown < 10:
        return f"{shown:.1f}"
    return f"{shown:,.0f}" if shown < 1e6 else f"{shown:.1e}"


def with_error(value: float, error: float) -> str:
    """Return a value to the digits its error allows, two digits of the error.

    Examples
    --------
    >>> with_error(4.397981, 0.00171), with_error(1234.5, 56.0), with_error(2.0, 0.0)
    ('4.3980 ± 0.0017', '1234 ± 56', '2')
    """
    places = decimals(error)
    if places is None:
        return f"{value:.6g}"
    if places > MOST_DECIMALS - 3:
        return f"{value:.10g} ± {error:.1e}"
    places = max(places, 0)
    return f"{value:.{places}f} ± {error:.{places}f}"
