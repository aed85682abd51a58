"""The training loop: compiled blocks of steps, held-out draws, averaging, restarts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.solvers.training.objectives import batch_means, least_squares, pairwise_variance
from az_cv.solvers.training.plan import Draws, Plan, State, Trained, TrainingRecord
from az_cv.solvers.training.predictor import CHUNK, Predictor
from az_cv.solvers.training.schedules import relative_rate

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.solvers.training.model import Constants, Model, Params
    from az_cv.solvers.training.source import Buffer, Source

EXPLODED = 20.0  # times the loss of the first block, or of no control variate at all
PATIENCE = 6  # blocks without improvement on held-out draws
BLOCKS = 20
HYPER_RATE = 0.02


class Trainer:
    """Trains one model on any number of training sets with one compilation."""

    def __init__(self, model: Model, plan: Plan, chunk: int = CHUNK) -> None:
        import jax

        self.model, self.plan, self.chunk = model, plan, chunk
        self.optimizer = _optimizer(model, plan)
        self._steps: int | None = None  # that are compiled together, the same in every fold
        self._run_block = jax.jit(self._block, static_argnames="steps")
        self.predictor = Predictor(model)

    def train(
        self,
        constants: Constants,
        source: Source,
        rng_key: Any,
        *,
        label: str,
        fold: int,
        max_restarts: int,
        report: Callable[[float, float, float], None],
    ) -> Trained:
        """Train on what a source offers, restarting on divergence.

        Parameters
        ----------
        constants : dict
            From the model's ``prepare`` on draws of the same source.
        source : Source
        rng_key : JAX random key
        label, fold : str and int
            Names in the history.
        max_restarts : int
            Each at a quarter of the learning rate.
        report : callable
            Called with the share that is done, the loss and the held-out variance.
        """
        records: list[TrainingRecord] = []
        for restart in range(max_restarts + 1):
            rate = constants["learning_rate"] * 0.25**restart
            params = None
            for done, state, loss, variance in self._blocks(constants, source, rng_key, rate):
                epoch = float(state.step) * self.plan.batch_size / max(source.count, 1)
                records.append(TrainingRecord(label, fold, restart, epoch, loss, variance))
                report(done, loss, variance)
                params = state.average
            if params is not None and math.isfinite(records[-1].loss):
                judged = source.held_out if source.held_out.size else source.at(0)
                return Trained(params, self.column_errors(params, constants, judged), records)
        return Trained(None, np.full((1, 1), np.inf), records)

    def _blocks(
        self,
        constants: Constants,
        source: Source,
        rng_key: Any,
        rate: float,
    ) -> Any:
        """Yield the best state so far after every block, ending where training should end."""
        import jax
        import jax.numpy as jnp

        plan = self.plan
        init_key, step_key = jax.random.split(rng_key)
        params = self.model.init(init_key, constants)
        state = State(params, self.optimizer.init(params), params, jnp.array(0.0), jnp.array(0))
        per_epoch = max(1.0, source.count / plan.batch_size)
        total = max(1, round(plan.num_epochs * per_epoch))
        steps = self._steps = self._steps or _steps_together(total, source, plan.batch_size)
        # Of so many runs a block, after which held-out draws are looked at.
        runs = max(1, round(total / BLOCKS / steps))
        block = runs * steps
        source.start(rng_key)
        begin, clock, timed = time.perf_counter(), 0.0, 0
        best, best_error, waited, first_loss = None, math.inf, 0, math.inf
        while int(state.step) < total:
            began = time.perf_counter()
            losses = []
            for _ in range(runs):
                state, loss = self._run_block(
                    state,
                    constants,
                    *source.at(int(state.step) * plan.batch_size),
                    step_key,
                    rate,
                    float(total),
                    steps=steps,
                )
                losses.append(float(loss) / self.model.columns)
            loss, step = float(np.mean(losses)), int(state.step)
            if step > block:  # the first block includes compilation
                clock, timed = clock + time.perf_counter() - began, timed + block
                left = max(0.0, plan.seconds - (time.perf_counter() - begin))
                total = int(min(total, step + left / (clock / timed)))
            first_loss = min(first_loss, loss) if step == block else first_loss
            if not math.isfinite(loss) or loss > EXPLODED * max(first_loss, 0.5):
                yield min(1.0, step / total), state, math.nan, math.nan
                return
            candidate = state if float(state.averaged) else state._replace(average=state.params)
            error = self._held_out_error(candidate.average, constants, source.held_out)
            if not plan.early_stopping or not math.isfinite(error) or error <= best_error:
                best, best_error, waited = candidate, error, 0
            else:
                waited += 1
            assert best is not None
            yield min(1.0, step / total), best._replace(step=state.step), loss, best_error
            if waited >= PATIENCE:
                return

    def _block(
        self,
        state: State,
        constants: Constants,
        draws: Draws,
        rows: Any,
        count: Any,
        rng_key: Any,
        rate: Any,
        total: Any,
        *,
        steps: int,
    ) -> tuple[State, Any]:
        """Take `steps` steps and return the mean loss."""
        import jax

        def one(state: State, key: Any) -> tuple[State, Any]:
            return self._step(state, constants, draws, rows, count, key, rate, total)

        keys = jax.vmap(lambda k: jax.random.fold_in(rng_key, state.step + k))(np.arange(steps))
        state, losses = jax.lax.scan(one, state, keys)
        return state, losses.mean()

    def _step(
        self,
        state: State,
        constants: Constants,
        draws: Draws,
        rows: Any,
        count: Any,
        key: Any,
        rate: Any,
        total: Any,
    ) -> tuple[State, Any]:
        import jax
        import jax.numpy as jnp
        import optax

        plan = self.plan
        picked = self._minibatch(rows, count, key)
        batch = Draws(*(array[picked] for array in draws))
        loss, gradient = jax.value_and_grad(self._loss)(state.params, constants, batch)
        gradient = self.model.precondition(gradient, constants)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        progress = state.step / total
        if plan.optimizer is None:
            if not self.model.float64:
                updates = _shrink(updates, state.params, constants["weight_decay"])
            speed = rate * relative_rate(plan.schedule, progress)
            updates = jax.tree.map(lambda u: (speed * u).astype(u.dtype), updates)
        params = optax.apply_updates(state.params, updates)
        counted = jnp.where(progress >= 1 - plan.averaging, 1.0, 0.0)
        averaged = state.averaged + counted
        share = counted / jnp.maximum(averaged, 1.0)
        average = jax.tree.map(
            lambda a, p: (a + share * (p - a)).astype(p.dtype), state.average, params
        )
        return State(params, optimizer, average, averaged, state.step + 1), loss

    def _minibatch(self, rows: Any, count: Any, key: Any) -> Any:
        """Return some of the first `count` rows, runs of successive draws for batch means."""
        import jax
        import jax.numpy as jnp

        plan = self.plan
        if plan.objective != "batch_means":
            return rows[jax.random.randint(key, (plan.batch_size,), 0, count)]
        starts = rows[jax.random.randint(key, (plan.batch_size // plan.window,), 0, count)]
        return (starts[:, None] + jnp.arange(plan.window)).ravel()

    def _loss(self, params: Params, constants: Constants, batch: Draws) -> Any:
        """Return the objective with its penalties, summed over the columns."""
        import jax.numpy as jnp

        plan = self.plan
        g = self.model.predict(params, constants, batch.x, batch.s)
        repeats = self.model.columns // batch.outputs.shape[1]
        residual = jnp.tile(batch.outputs, (1, repeats)) - g
        match plan.objective:
            case "variance":
                # The intercept is the mean of the residuals; it is trained only to be reported.
                objective = pairwise_variance(residual)
            case "batch_means":
                objective = batch_means(residual, params["intercept"], plan.window)
            case _:
                objective = least_squares(residual, params["intercept"])
        objective = objective + self.model.penalty(params, constants)
        if plan.output_penalty:
            objective = objective + 0.5 * plan.output_penalty * (g**2).mean(axis=0)
        return objective.sum()

    def column_errors(
        self, params: Params, constants: Constants, judged: Buffer
    ) -> Float[np.ndarray, "k q"]:
        """Return the variance of the residuals at some draws for every strength and output."""
        rows = np.asarray(judged.rows[: judged.size])
        g = self.predictor(params, constants, judged.draws, rows, self.chunk)
        f = np.asarray(judged.draws.outputs[rows])
        return (f[:, None, :] - g.reshape(len(rows), -1, f.shape[1])).var(axis=0)

    def _held_out_error(self, params: Params, constants: Constants, held_out: Buffer) -> float:
        if held_out.size < 2:
            return math.nan
        return float(self.column_errors(params, constants, held_out).min(axis=0).mean())


def _steps_together(total: int, source: Source, batch_size: int) -> int:
    """Return how many steps are compiled as one: those of a block, or of a part of a buffer."""
    block = max(1, -(-total // BLOCKS))
    if source.capacity >= source.count:
        return block
    whole = max(1, source.capacity // batch_size)
    return -(-whole // -(-whole // block))


def _optimizer(model: Model, plan: Plan) -> Any:
    """Return the user's optimiser, or one whose updates are still to be multiplied by the rate."""
    import optax

    if plan.optimizer is not None:
        return plan.optimizer
    if model.float64:  # preconditioned gradient steps; parameters of kernels by Adam
        return optax.partition(
            {
                "linear": optax.scale(-1.0),
                "hyper": optax.chain(optax.scale_by_adam(), optax.scale(-HYPER_RATE)),
            },
            lambda params: {
                name: _label_all(value, "hyper" if name == "hyper" else "linear")
                for name, value in params.items()
            },
        )
    return optax.chain(optax.scale_by_adam(), optax.scale(-1.0))


def _label_all(tree: Any, label: str) -> Any:
    import jax

    return jax.tree.map(lambda _: label, tree)


def _shrink(updates: Params, params: Params, decay: Any) -> Params:
    """Pull matrices of weights towards zero, not biases, intercepts or the skip term."""
    import jax

    free = ("skip", "intercept")
    return {
        name: update
        if name in free
        else jax.tree.map(lambda u, p: u - decay * p if p.ndim > 1 else u, update, params[name])
        for name, update in updates.items()
    }
