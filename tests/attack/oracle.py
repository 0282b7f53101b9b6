"""Distances from their formulas alone, in extended precision and without the library: slow, for
small problems.

    c(z, z') = ½(‖x − x'‖² + w W₂²(α_y, α_y')) ,   S = OT_c(A, B) − ½ OT_c(A, A) − ½ OT_c(B, B)

Features are subtracted pair by pair (no products of centred points), the dual is climbed by
softmins and Newton steps in the log domain while ε is annealed, and the plan that is left is looked
at: an oracle that has not solved says so."""

import numpy as np

LONG = np.longdouble


def half_squared(x, y):
    """½‖x_i − y_j‖² from the differences."""
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2) / 2


def gaussian(x):
    """Mean and factor A of a class of equal weights, AᵀA = Σ (x − μ)(x − μ)ᵀ / (n − 1)."""
    mean = x.mean(axis=0)
    return mean, (x - mean) / np.sqrt(LONG(max(len(x) - 1, 1)))


def label_distances(x, y, kind, first, second):
    """W₂² between the classes of two datasets, by labels 0, 1, …: Gaussians, or means alone."""
    table = np.zeros((max(first) + 1, max(second) + 1), dtype=LONG)
    for i in set(first):
        for j in set(second):
            (mean, a), (other, b) = gaussian(x[first == i]), gaussian(y[second == j])
            table[i, j] = ((mean - other) ** 2).sum()
            if kind == "bures":
                norm = np.linalg.svd((a @ b.T).astype(np.float64), compute_uv=False).sum()
                table[i, j] += (a**2).sum() + (b**2).sum() - 2 * norm
    return np.maximum(table, 0)


def ground_cost(x, y, kind, weight, first, second):
    """c between the samples of two datasets, given as numbers of any dtype."""
    x, y = np.asarray(x, dtype=LONG), np.asarray(y, dtype=LONG)
    cost = half_squared(x, y)
    if kind == "none":
        return cost
    return cost + LONG(weight) / 2 * label_distances(x, y, kind, first, second)[first][:, second]


def softmin(cost, potential, weights, epsilon, axis):
    exponent = (potential - cost) / epsilon + np.log(weights)
    top = exponent.max(axis=axis, keepdims=True)
    return -epsilon * (top.squeeze(axis) + np.log(np.exp(exponent - top).sum(axis=axis)))


def entropic(cost, a, b, epsilon, tol=1e-16):
    """(value, plan, marginal error) of OT_ε between positive weights, by Newton steps on g ↦ max_f D(f, g)."""
    epsilon, g = LONG(epsilon), np.zeros(len(b), dtype=LONG)
    stage = max(epsilon, LONG(np.ptp(cost)))
    while True:
        goal, last = (tol, True) if stage <= epsilon else (1e-3, False)
        stage = max(stage, epsilon)
        g, f, plan, error = _climb(cost, a, b, stage, g, goal, 400 if last else 60)
        if last:
            return a @ f + b @ g, plan, float(error)
        stage = stage / 3


def _climb(cost, a, b, epsilon, g, goal, steps):
    best = None
    for _ in range(steps):
        f = softmin(cost, g[None, :], b[None, :], epsilon, 1)
        plan = a[:, None] * b[None, :] * np.exp((f[:, None] + g[None, :] - cost) / epsilon)
        residual = b - plan.sum(axis=0)
        error = np.abs(residual).sum()
        if best is None or error < best[3]:
            best = (g, f, plan, error)
        if error <= goal:
            break
        value, newton = a @ f + b @ g, _newton(plan, a, residual)
        g = _line(cost, a, b, epsilon, g, epsilon * newton, value, residual @ newton * epsilon)
        if g is None:
            g = softmin(cost, f[:, None], a[:, None], epsilon, 0)
    return best


def _newton(plan, a, residual):
    scaled = (plan / np.sqrt(a)[:, None]).astype(np.float64)
    system = np.diag(plan.sum(axis=0).astype(np.float64)) - scaled.T @ scaled
    return np.linalg.lstsq(system, residual.astype(np.float64), rcond=1e-15)[0].astype(LONG)


def _line(cost, a, b, epsilon, g, step, value, slope):
    """The longest of some steps along which the dual rises enough; None if it does not."""
    if not np.isfinite(slope) or slope <= 0:
        return None
    for k in range(14):
        there = g + step / LONG(2**k)
        reached = a @ softmin(cost, there[None, :], b[None, :], epsilon, 1) + b @ there
        if reached >= value + slope / 2**k / 10**4:
            return there
    return None


def exact(cost, a, b):
    """Exact transport of float64 costs by POT: (value, plan)."""
    import ot

    unit = float(np.abs(cost).max()) or 1.0
    narrow = [part.astype(np.float64) for part in (a, b, cost / unit)]
    plan = ot.emd(*narrow, numItermax=10**7)
    return (plan * (cost / unit)).sum() * unit, plan


def energy(costs, a, b, epsilon):
    """(S, plans, doubt): the divergence, the plans of its three problems, and how far the oracle itself may be off."""
    a, b = (np.asarray(part, dtype=LONG) for part in (a, b))
    rows, columns = a > 0, b > 0
    sides = ((rows, columns, a, b, 1.0), (rows, rows, a, a, -0.5), (columns, columns, b, b, -0.5))
    total, plans, doubt = LONG(0), [], 0.0
    for cost, (left, right, p, q, factor) in zip(costs, sides, strict=True):
        cost, p, q = cost[left][:, right], p[left] / p[left].sum(), q[right] / q[right].sum()
        if epsilon == 0:
            value, plan = (LONG(0), np.diag(p)) if factor < 0 else exact(cost, p, q)
            error = 1e-16
        else:
            value, plan, error = entropic(cost, p, q, epsilon)
        total = total + factor * value
        doubt = doubt + abs(factor) * (error * np.ptp(cost) + 1e-18 * epsilon)
        plans.append(plan)
    return float(total), plans, float(doubt)
