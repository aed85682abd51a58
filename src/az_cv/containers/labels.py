"""Row labels: one for each scalar quantity, as ArviZ writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller

from az_cv.containers.idata import SAMPLE_DIMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr


def scalar_labels(dataset: xr.Dataset, skip_dims: Sequence[str] = SAMPLE_DIMS) -> list[str]:
    """Return the label of every element of every variable, dimensions in `skip_dims` left out.

    Examples
    --------
    >>> import az_cv
    >>> scalar_labels(az_cv.load_eight_schools()["posterior"].to_dataset())[:3]
    ['mu', 'tau', 'theta[Choate]']
    """
    labeller = BaseLabeller()
    return [
        str(labeller.make_label_flat(name, selection, index))
        for name, selection, index in xarray_sel_iter(dataset, skip_dims=set(skip_dims))
    ]


def listed(labels: Sequence[str], most: int = 5) -> str:
    """Return labels for a message, the first few of many.

    Examples
    --------
    >>> listed(["mu", "tau"]), listed(["a", "b", "c", "d"], most=2)
    ('mu, tau', 'a, b and 2 more')
    """
    if len(labels) <= most:
        return ", ".join(labels)
    return f"{', '.join(labels[:most])} and {len(labels) - most} more"
