"""Proposals for bridge sampling: distributions near a posterior, with known density and score.

A proposal is a base distribution in coordinates ``z`` and a chain of invertible maps from ``z`` to
the unconstrained parameters ``x``. Bridge sampling runs in ``z``: there the base is a standard
normal distribution or a mixture of normals, and the posterior is close to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
from scipy.cluster.vq import kmeans2

from az_cv.engine.whitening import fit_whitening

if TYPE_CHECKING:
    from jaxtyping import Float

    Points = Float[np.ndarray, "n d"]
    PerPoint = Float[np.ndarray, " n"]

LOG_TWO_PI = np.log(2 * np.pi)
MIXED = (2, 3)  # components of the mixtures that are tried
ROUNDS = 200  # of expectation and maximisation
# Skewness and weight of tails beyond these belong to no proposal worth fitting.
SKEWNESS, TAILS = 3.0, (-1.5, 1.5)


class Layer(Protocol):
    """An invertible map between coordinates."""

    def forward(self, z: Points) -> tuple[Points, PerPoint]:
        """Return the image and the log determinant of the derivative."""

    def backward(self, x: Points, s: Points) -> tuple[Points, Points, PerPoint]:
        """Return coordinates, the score there, and the log determinant of `forward` there."""


@dataclass(frozen=True)
class Affine:
    """``x = mean + factor z`` with a lower triangular factor."""

    mean: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d d"]

    def forward(self, z: Points) -> tuple[Points, PerPoint]:
        """Return the image and the log determinant of the derivative."""
        return self.mean + z @ self.factor.T, np.full(len(z), self._log_determinant)

    def backward(self, x: Points, s: Points) -> tuple[Points, Points, PerPoint]:
        """Return coordinates, the score there, and the log determinant of `forward` there."""
        z = scipy.linalg.solve_triangular(self.factor, (x - self.mean).T, lower=True).T
        return z, s @ self.factor, np.full(len(x), self._log_determinant)

    @property
    def _log_determinant(self) -> float:
        return float(np.log(np.abs(np.diag(self.factor))).sum())


@dataclass(frozen=True)
class SinhArcsinh:
    """``x = place + size sinh((arcsinh(z) + skew) / tail)``, coordinate by coordinate.

    The distribution of Jones and Pewsey (2009), doi:10.1093/biomet/asp053, when ``z`` is normal.
    """

    place: Float[np.ndarray, " d"]
    size: Float[np.ndarray, " d"]
    skew: Float[np.ndarray, " d"]
    tail: Float[np.ndarray, " d"]

    def forward(self, z: Points) -> tuple[Points, PerPoint]:
        """Return the image and the log determinant of the derivative."""
        inner = (np.arcsinh(z) + self.skew) / self.tail
        return self.place + self.size * np.sinh(inner), self._log_slope(z, inner).sum(axis=1)

    def backward(self, x: Points, s: Points) -> tuple[Points, Points, PerPoint]:
        """Return coordinates, the score there, and the log determinant of `forward` there."""
        inner = np.arcsinh((x - self.place) / self.size)
        z = np.sinh(self.tail * inner - self.skew)
        log_slope = self._log_slope(z, inner)
        root = np.sqrt(1 + z**2)
        of_slope = np.tanh(inner) / (self.tail * root) - z / root**2
        return z, s * np.exp(log_slope) + of_slope, log_slope.sum(axis=1)

    def _log_slope(self, z: Points, inner: Points) -> Points:
        log_cosh = np.logaddexp(inner, -inner) - np.log(2)
        return np.log(self.size / self.tail) + log_cosh - 0.5 * np.log1p(z**2)


@dataclass(frozen=True)
class Normal:
    """The standard normal distribution."""

    d: int

    def draw(self, n: int, rng: np.random.Generator) -> Points:
        """Return independent draws."""
        return rng.normal(size=(n, self.d))

    def log_density(self, z: Points) -> PerPoint:
        """Return the log density, every constant included."""
        return -0.5 * (z**2).sum(axis=1) - 0.5 * self.d * LOG_TWO_PI

    def score(self, z: Points) -> Points:
        """Return the gradient of the log density."""
        return -z


@dataclass(frozen=True)
class Mixture:
    """A mixture of normal distributions."""

    weights: Float[np.ndarray, " k"]
    parts: tuple[Affine, ...]

    def draw(self, n: int, rng: np.random.Generator) -> Points:
        """Return independent draws."""
        counts = rng.multinomial(n, self.weights)
        d = len(self.parts[0].mean)
        blocks = [part.forward(rng.normal(size=(k, d)))[0] for part, k in zip(self.parts, counts)]
        return rng.permutation(np.concatenate(blocks))

    def log_density(self, z: Points) -> PerPoint:
        """Return the log density, every constant included."""
        return np.asarray(scipy.special.logsumexp(self._log_parts(z), axis=1))

    def score(self, z: Points) -> Points:
        """Return the gradient of the log density."""
        shares = scipy.special.softmax(self._log_parts(z), axis=1)
        total = np.zeros_like(z)
        for share, part in zip(shares.T, self.parts):
            precision = scipy.linalg.cho_solve((part.factor, True), (z - part.mean).T).T
            total -= share[:, None] * precision
        return total

    def _log_parts(self, z: Points) -> Float[np.ndarray, "n k"]:
        base = Normal(z.shape[1])
        columns = []
        for weight, part in zip(self.weights, self.parts):
            inner, _, log_determinant = part.backward(z, z)
            columns.append(np.log(weight) + base.log_density(inner) - log_determinant)
        return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Proposal:
    """A base distribution, and the maps from its coordinates to the parameters, innermost last.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(3.0, 2.0, size=(1000, 1))
    >>> gaussian = fit_gaussian(x)
    >>> z, s, log_determinant = gaussian.coordinates(x, -(x - 3) / 4)
    >>> bool(np.allclose(gaussian.parameters(z)[0], x)), bool(abs(z.std() - 1) < 1e-3)
    (True, True)
    """

    label: str
    layers: tuple[Layer, ...]
    base: Normal | Mixture

    def coordinates(self, x: Points, s: Points) -> tuple[Points, Points, PerPoint]:
        """Return coordinates and scores of draws there, and the log determinant of the maps."""
        total = np.zeros(len(x))
        for layer in self.layers:
            x, s, log_determinant = layer.backward(x, s)
            total = total + log_determinant
        return x, s, total

    def parameters(self, z: Points) -> tuple[Points, PerPoint]:
        """Return the parameters at coordinates `z`, and the log determinant of the maps."""
        total = np.zeros(len(z))
        for layer in reversed(self.layers):
            z, log_determinant = layer.forward(z)
            total = total + log_determinant
        return z, total


def fit_gaussian(x: Points) -> Proposal:
    """Fit mean and covariance of draws."""
    return Proposal("Gaussian", (_by_moments(x),), Normal(x.shape[1]))


def normal_candidates(x: Points, s: Points) -> list[Proposal]:
    """Fit every kind of proposal with one peak to draws and their scores, the simplest first.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Unconstrained draws and scores.
    """
    d = x.shape[1]
    outer = _by_moments(x)
    white_x, white_s, _ = outer.backward(x, s)
    found = [fit_gaussian(x)]
    by_scores = _by_scores(white_x, white_s)
    if by_scores is not None:
        found.append(Proposal("Gaussian of the scores", (outer, by_scores), Normal(d)))
    warp = _fit_warp(white_x)
    warped_x, warped_s, _ = warp.backward(white_x, white_s)
    for label, inner in (
        ("warped Gaussian", _by_moments(warped_x)),
        ("warped Gaussian of the scores", _by_scores(warped_x, warped_s)),
    ):
        if inner is not None:
            found.append(Proposal(label, (outer, warp, inner), Normal(d)))
    return found


def mixture_candidates(x: Points) -> list[Proposal]:
    """Fit mixtures of normal distributions to draws, as far as these support them."""
    outer = _by_moments(x)
    white = outer.backward(x, x)[0]
    fitted = {number: _fit_mixture(white, number) for number in MIXED}
    return [
        Proposal(f"mixture of {number} Gaussians", (outer,), mixture)
        for number, mixture in fitted.items()
        if mixture is not None
    ]


def _by_moments(x: Points) -> Affine:
    """Return the map to mean and covariance of draws."""
    whitening = fit_whitening(x)
    if whitening.scale.shape[1] < x.shape[1]:
        raise ValueError(
            f"The draws vary in {whitening.scale.shape[1]} of {x.shape[1]} unconstrained "
            "directions: they have no density, and no evidence can be computed from them. Check "
            "the sampler, or fix what does not vary."
        )
    return Affine(whitening.mean, whitening.scale)


def _by_scores(x: Points, s: Points) -> Affine | None:
    """Return the map to the Gaussian whose scores are closest, exact where the posterior is one.

    The scores of a Gaussian with precision P are ``-P (x - m)``: a regression finds P and m.
    """
    n, d = x.shape
    if n < 2 * (d + 1):
        return None
    design = np.column_stack([np.ones(n), x])
    coefficients = scipy.linalg.lstsq(design, s)[0]
    precision = -0.5 * (coefficients[1:] + coefficients[1:].T)
    try:
        factor = scipy.linalg.cholesky(precision, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    covariance = scipy.linalg.cho_solve((factor, True), np.eye(d))
    mean = x.mean(axis=0) + covariance @ s.mean(axis=0)
    return Affine(mean, scipy.linalg.cholesky(0.5 * (covariance + covariance.T), lower=True))


def _fit_warp(x: Points) -> SinhArcsinh:
    """Fit skewness and tails of each standardised coordinate by maximum likelihood."""

    def loss(parameters: Float[np.ndarray, " 4"], column: Points) -> float:
        place, log_size, skew, log_tail = parameters
        layer = SinhArcsinh(*(np.array([v]) for v in (place, np.exp(log_size), skew, 1.0)))
        inner = np.arcsinh((column - layer.place) / layer.size)
        z = np.sinh(np.exp(log_tail) * inner - skew)
        log_slope = np.logaddexp(inner, -inner) - 0.5 * np.log1p(z**2)
        return float((0.5 * z**2 + log_slope).mean()) + log_size - log_tail

    bounds = [(-5.0, 5.0), (-5.0, 3.0), (-SKEWNESS, SKEWNESS), TAILS]
    rows = []
    for column in x.T:
        found = scipy.optimize.minimize(
            loss, np.zeros(4), args=(column[:, None],), method="L-BFGS-B", bounds=bounds
        )
        rows.append(found.x if np.isfinite(found.fun) else np.zeros(4))
    place, log_size, skew, log_tail = np.array(rows).T
    return SinhArcsinh(place, np.exp(log_size), skew, np.exp(log_tail))


def _fit_mixture(x: Points, number: int) -> Mixture | None:
    """Fit a mixture of normals by expectation and maximisation, None where a part dies out."""
    n, d = x.shape
    if n < 10 * number * (d + 1):
        return None
    labels = kmeans2(x, number, minit="++", rng=np.random.default_rng(0))[1]
    shares = np.eye(number)[labels]
    previous = -np.inf
    for _ in range(ROUNDS):
        counts = shares.sum(axis=0)
        if counts.min() < 2 * (d + 1):
            return None
        mixture = Mixture(counts / n, tuple(_weighted_part(x, share) for share in shares.T))
        log_parts = mixture._log_parts(x)
        fit = float(scipy.special.logsumexp(log_parts, axis=1).mean())
        if fit - previous < 1e-5:
            break
        previous = fit
        shares = scipy.special.softmax(log_parts, axis=1)
    return mixture


def _weighted_part(x: Points, share: PerPoint) -> Affine:
    mean = share @ x / share.sum()
    centred = x - mean
    covariance = (centred * share[:, None]).T @ centred / share.sum()
    # Draws are standardised: a thousandth of their variance keeps a part from collapsing.
    covariance += 1e-3 * np.eye(x.shape[1])
    return Affine(mean, scipy.linalg.cholesky(covariance, lower=True))
