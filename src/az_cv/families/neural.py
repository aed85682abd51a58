"""Control variates from neural networks, and from any function written in JAX.

A trained family offers two functions: ``init`` makes parameters, ``apply`` maps them, draws and
scores to the values ``L u`` of all control variates at once. The networks here end in a linear map
from shared hidden features ``L h_j`` to the outputs, plus a linear map of the scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from az_cv.families.operators import OPERATORS, langevin, scalar_langevin

if TYPE_CHECKING:
    Params = dict[str, Any]
    # (activation, first derivative, second derivative) at the same points
    Derivatives = Callable[[Any], tuple[Any, Any, Any]]

ACTIVATIONS = ("silu", "tanh", "softplus", "gelu")
KINKED = ("relu", "leaky_relu", "elu", "relu6", "hard_tanh", "hard_swish", "celu")
KINK_MESSAGE = (
    "activation {name!r} has a kink, where its second derivative is a point mass that automatic "
    "differentiation does not see: the control variates would not average to zero and the "
    "estimates would be biased. Choose a smooth one from {choices}."
)


@runtime_checkable
class TrainedFamily(Protocol):
    """Control variates that are not linear in their parameters."""

    def init(self, rng_key: Any, d: int, q: int) -> Params:
        """Return initial parameters for q control variates in d dimensions."""
        ...

    def apply(self, params: Params, x: Any, s: Any) -> Any:
        """Return the control variates, of shape (n, q), at draws and scores of shape (n, d)."""
        ...


@dataclass(frozen=True)
class NeuralNetwork:
    """Images of a fully connected network under a Stein operator.

    All outputs share the hidden layers. With one hidden layer the operator is known in closed form
    and costs as much as a forward pass; with more, values, Jacobians and Laplacians are carried
    forward together, which needs no second derivative of the whole network.

    Parameters
    ----------
    widths : tuple of int
        Units of each hidden layer.
    activation : {"silu", "tanh", "softplus", "gelu"}
        Smooth ones only: with a kink the control variates do not average to zero.
    operator : {"langevin", "scalar_langevin"}
        ``langevin``: u is the vector field ``A (h(x) * V)`` with a trained direction ``v_j`` for
        each hidden unit. ``scalar_langevin``: u is a potential ``A h(x)``.
    skip : bool
        Add the scores themselves, so that the network contains the first-order polynomials.
    networks : int
        Independently started networks whose control variates are averaged.
    squares : bool
        Build the control variate of an output that is the square of another, as second moments
        are, on what that other has learned (one hidden layer with `skip` only).

    See Also
    --------
    az_cv.SGD : Trains it.
    az_cv.families.Potential : Functions of your own.

    Examples
    --------
    >>> from az_cv import NeuralNetwork
    >>> NeuralNetwork(widths=(64, 64), activation="tanh").widths
    (64, 64)
    """

    widths: tuple[int, ...] = (512,)
    activation: Literal["silu", "tanh", "softplus", "gelu"] = "silu"
    operator: Literal["langevin", "scalar_langevin"] = "langevin"
    skip: bool = True
    networks: int = 1
    squares: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if self.activation in KINKED:
            raise ValueError(KINK_MESSAGE.format(name=self.activation, choices=list(ACTIVATIONS)))
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation {self.activation!r} is unknown. Choose from {list(ACTIVATIONS)}."
            )
        if self.operator not in OPERATORS:
            raise ValueError(
                f"operator {self.operator!r} is unknown. Choose from {list(OPERATORS)}."
            )
        if not self.widths or any(width < 1 for width in self.widths):
            raise ValueError(f"widths must be positive numbers of units; they are {self.widths}.")
        if self.networks < 1:
            raise ValueError(f"networks must be at least 1; it is {self.networks}.")

    def init(self, rng_key: Any, d: int, q: int) -> Params:
        """Return random hidden layers and zero output layers: training starts from g = 0."""
        import jax
        import jax.numpy as jnp

        sizes = (d, *self.widths)
        layers = []
        for k, (inputs, units) in enumerate(itertools.pairwise(sizes)):
            weight_key, bias_key, rng_key = jax.random.split(rng_key, 3)
            # The first layer starts gentle: standardised draws are about sqrt(d) long.
            scale = (0.5 if k == 0 else 1.0) / np.sqrt(inputs)
            layers.append(
                {
                    "weights": scale * jax.random.normal(weight_key, (units, inputs)),
                    "biases": jax.random.normal(bias_key, (units,)),
                }
            )
        params: Params = {"layers": layers, "outputs": jnp.zeros((self.widths[-1], q))}
        if self.operator == "langevin":
            directions = jax.random.normal(rng_key, (self.widths[-1], d)) / np.sqrt(d)
            params["directions"] = directions
        if self.skip:
            params["skip"] = jnp.zeros((d, q))
        return params

    def hidden_features(self, params: Params, x: Any, s: Any) -> Any:
        """Return ``L h_j`` at the draws, of shape (n, units of the last layer)."""
        if self.operator == "langevin":
            return _field_features(params, x, s, _derivatives(self.activation))
        return _potential_features(params["layers"], x, s, _derivatives(self.activation))

    def apply(self, params: Params, x: Any, s: Any) -> Any:
        """Return the control variates of all outputs, of shape (n, q)."""
        values = self.hidden_features(params, x, s) @ params["outputs"]
        return values + s @ params["skip"] if self.skip else values

    def apply_paired(self, params: Params, x: Any, s: Any, pairs: dict[str, Any]) -> Any:
        """Return the control variates when some outputs are squares of others.

        If ``f_i`` is close to ``v . x`` and ``u`` solves Stein's equation for it, then the field
        ``(v . x) u`` almost solves it for ``f_i^2``, since

            L [(v . x) u] = (v . x) L u + v . u

        and ``v . u`` is nearly constant. Squares start from what their partners have learned, times
        a trained factor, and keep control variates of their own for the rest.

        Parameters
        ----------
        params : dict
            With ``factors`` of shape (k,).
        x, s : arrays of shape (n, d)
        pairs : dict
            ``directions`` v of shape (d, k), and the columns ``squares`` and ``partners``.
        """
        import jax

        values = self.apply(params, x, s)
        directions, partners = pairs["directions"], pairs["partners"]
        layer, outputs = params["layers"][0], params["outputs"][:, partners]
        value, slope, _ = _derivatives(self.activation)(x @ layer["weights"].T + layer["biases"])
        if self.operator == "langevin":
            along = value @ (outputs * (params["directions"] @ directions))
        else:
            along = slope @ (outputs * (layer["weights"] @ directions))
        along = along + (params["skip"][:, partners] * directions).sum(axis=0)
        # Partners learn from their own output alone: products are heavy-tailed teachers.
        product = jax.lax.stop_gradient((x @ directions) * values[:, partners] + along)
        squares = params["factors"] * product
        return values.at[:, pairs["squares"]].add(squares)

    @property
    def pairs_squares(self) -> bool:
        """Whether `apply_paired` is available: one hidden layer and the skip term."""
        return len(self.widths) == 1 and self.skip and self.squares


@dataclass(frozen=True)
class Potential:
    """Control variates from a function of your own, written in JAX.

    Parameters
    ----------
    function : callable
        ``function(params, x)`` with `x` a standardised draw of shape (d,). Under
        ``scalar_langevin`` it returns one potential per output, shape (q,); under ``langevin`` one
        vector field per output, shape (q, d). It must be smooth. An equinox module that maps (d,)
        to (q,) or (q, d) goes through :meth:`from_module`.
    initial : callable
        ``initial(rng_key, d, q)`` returns the parameters to start from.
    operator : {"scalar_langevin", "langevin"}

    See Also
    --------
    az_cv.NeuralNetwork : The family that needs no function of yours.

    Notes
    -----
    Derivatives are taken by automatic differentiation, d of them for each draw.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.families import Potential
    >>> def waves(params, x):
    ...     return params @ x
    >>> Potential(waves, lambda rng_key, d, q: np.zeros((q, d))).operator
    'scalar_langevin'
    """

    function: Callable[[Any, Any], Any]
    initial: Callable[[Any, int, int], Any]
    operator: Literal["scalar_langevin", "langevin"] = "scalar_langevin"

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(
                f"operator {self.operator!r} is unknown. Choose from {list(OPERATORS)}."
            )

    @classmethod
    def from_module(
        cls,
        build: Callable[..., Any],
        *,
        operator: Literal["scalar_langevin", "langevin"] = "scalar_langevin",
    ) -> Potential:
        """Train an equinox module.

        Parameters
        ----------
        build : callable
            ``build(d, q, rng_key)`` returns the module, for instance
            ``lambda d, q, rng_key: eqx.nn.MLP(d, q, 64, 2, jax.nn.silu, key=rng_key)``.
        operator : {"scalar_langevin", "langevin"}
        """
        import equinox as eqx

        # Arrays are trained; everything else of the module (activations, sizes) is static.
        static: dict[str, Any] = {}

        def initial(rng_key: Any, d: int, q: int) -> Any:
            module = build(d, q, rng_key)
            _refuse_kinks(module)
            arrays, static["module"] = eqx.partition(module, eqx.is_inexact_array)
            return arrays

        def function(params: Any, x: Any) -> Any:
            return eqx.combine(params, static["module"])(x)

        return cls(function, initial, operator)

    def init(self, rng_key: Any, d: int, q: int) -> Params:
        """Return the parameters to start from."""
        return {"custom": self.initial(rng_key, d, q)}

    def apply(self, params: Params, x: Any, s: Any) -> Any:
        """Return the control variates of all outputs, of shape (n, q)."""
        operator = langevin if self.operator == "langevin" else scalar_langevin
        return operator(lambda point: self.function(params["custom"], point))(x, s)


def _refuse_kinks(module: Any) -> None:
    """Raise if an activation stored in the module is known to have a kink."""
    import jax

    for leaf in jax.tree.leaves(module):
        name = getattr(leaf, "__name__", "")
        if name in KINKED:
            raise ValueError(KINK_MESSAGE.format(name=name, choices=list(ACTIVATIONS)))


def _derivatives(activation: str) -> Derivatives:
    """Return a function that evaluates an activation with its first two derivatives."""
    import jax
    import jax.numpy as jnp

    def silu(z: Any) -> tuple[Any, Any, Any]:
        gate = jax.nn.sigmoid(z)
        slope = gate * (1 - gate)
        return z * gate, gate + z * slope, slope * (2 + z * (1 - 2 * gate))

    def tanh(z: Any) -> tuple[Any, Any, Any]:
        value = jnp.tanh(z)
        slope = 1 - value**2
        return value, slope, -2 * value * slope

    def softplus(z: Any) -> tuple[Any, Any, Any]:
        gate = jax.nn.sigmoid(z)
        return jax.nn.softplus(z), gate, gate * (1 - gate)

    def gelu(z: Any) -> tuple[Any, Any, Any]:
        density = jnp.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        cumulative = jax.scipy.special.ndtr(z)
        return z * cumulative, cumulative + z * density, (2 - z**2) * density

    return {"silu": silu, "tanh": tanh, "softplus": softplus, "gelu": gelu}[activation]


def _potential_features(layers: list[Params], x: Any, s: Any, derivatives: Derivatives) -> Any:
    """Return ``laplacian(h_j) + grad(h_j) . s``, carried forward layer by layer.

    ``stein`` is that operator applied to the units below. Through a linear map it passes unchanged,
    through an activation it becomes ``act' stein + act'' |grad z|^2``.
    """
    import jax.numpy as jnp

    weights = layers[0]["weights"]
    value, slope, curvature = derivatives(x @ weights.T + layers[0]["biases"])
    # Squared gradients of the first layer are |w_j|^2 wherever the draw is.
    stein = slope * (s @ weights.T) + curvature * (weights**2).sum(axis=1)
    if len(layers) == 1:
        return stein
    jacobian = slope[:, None, :] * weights.T  # (n, d, units)
    for layer in layers[1:]:
        value, slope, curvature = derivatives(value @ layer["weights"].T + layer["biases"])
        jacobian = jacobian @ layer["weights"].T
        squared = jnp.einsum("ndj,ndj->nj", jacobian, jacobian)
        stein = slope * (stein @ layer["weights"].T) + curvature * squared
        jacobian = slope[:, None, :] * jacobian
    return stein


def _field_features(params: Params, x: Any, s: Any, derivatives: Derivatives) -> Any:
    """Return ``div(h_j v_j) + h_j v_j . s = grad(h_j) . v_j + h_j (v_j . s)``."""
    import jax.numpy as jnp

    layers, directions = params["layers"], params["directions"]
    weights = layers[0]["weights"]
    value, slope, _ = derivatives(x @ weights.T + layers[0]["biases"])
    if len(layers) == 1:
        return slope * (weights * directions).sum(axis=1) + value * (s @ directions.T)
    jacobian = slope[:, None, :] * weights.T
    for layer in layers[1:]:
        value, slope, _ = derivatives(value @ layer["weights"].T + layer["biases"])
        jacobian = slope[:, None, :] * (jacobian @ layer["weights"].T)
    return jnp.einsum("ndj,jd->nj", jacobian, directions) + value * (s @ directions.T)
