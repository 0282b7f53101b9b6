"""Independent, slow, plain answers that the library is held against; nothing here imports advect."""

import math

import numpy as np
import torch


def weighted_points(n, m, d=3, zeros=False):
    """Two clouds that overlap, and weights of sum one; some are zero if wanted."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(k, d, generator=generator, dtype=torch.float64) for k in (n, m))
    a, b = (torch.rand(k, generator=generator, dtype=torch.float64) + 0.1 for k in (n, m))
    if zeros:
        a[: n // 3], b[-m // 4 :] = 0, 0
    return x, y + 0.3, a / a.sum(), b / b.sum()


def sinkhorn_loop(cost, a, b, epsilon, tol=1e-13, max_iter=200_000, reach=math.inf):
    """Plain log-domain Sinkhorn in float64 with numpy, damped where there is a reach: (value, f, g, plan)."""
    cost, a, b = (np.asarray(part, dtype=np.float64) for part in (cost, a, b))
    rho, damping = reach**2, 1 / (1 + epsilon / reach**2)

    def softmin(values, log_weights, axis):
        exponent = values + log_weights
        top = exponent.max(axis=axis, keepdims=True)
        return (
            -damping * epsilon * (top.squeeze(axis) + np.log(np.exp(exponent - top).sum(axis=axis)))
        )

    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a), np.log(b)
    f, g = np.zeros(len(a)), np.zeros(len(b))
    for _ in range(max_iter):
        f = softmin((g[None, :] - cost) / epsilon, log_b[None, :], 1)
        new = softmin((f[:, None] - cost) / epsilon, log_a[:, None], 0)
        change, g = np.abs(new - g).max(), new
        if change <= tol * max(1.0, np.abs(g).max()):
            break
    plan = a[:, None] * b[None, :] * np.exp((f[:, None] + g[None, :] - cost) / epsilon)
    if reach == math.inf:
        return float(a @ f + b @ g), f, g, plan
    value = -rho * (a @ np.expm1(-f / rho) + b @ np.expm1(-g / rho)) + epsilon * (1 - plan.sum())
    return float(value), f, g, plan


def primal_value(plan, cost, a, b, epsilon):
    """⟨P, C⟩ + ε KL(P | a ⊗ b), from a plan alone."""
    plan, cost = np.asarray(plan, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    return float((plan * cost).sum() + epsilon * kl(plan, np.outer(a, b)))


def kl(p, q) -> float:
    """Σ p log(p/q) − p + q, for positive measures of any mass."""
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    inside = p > 0
    return float((p[inside] * np.log(p[inside] / q[inside])).sum() - p.sum() + q.sum())


def divergence_loop(xy, xx, yy, a, b, epsilon):
    """The debiased Sinkhorn divergence from three plain loops."""
    return (
        sinkhorn_loop(xy, a, b, epsilon)[0]
        - sinkhorn_loop(xx, a, a, epsilon)[0] / 2
        - sinkhorn_loop(yy, b, b, epsilon)[0] / 2
    )


def bures_by_roots(mean_a, cov_a, mean_b, cov_b):
    """W₂² of two Gaussians by the textbook formula with d × d matrix roots."""
    from scipy.linalg import sqrtm

    root = sqrtm(cov_a).real
    cross = sqrtm(root @ cov_b @ root).real
    return float(((mean_a - mean_b) ** 2).sum() + np.trace(cov_a + cov_b - 2 * cross))


def central_differences(function, x: torch.Tensor, step: float = 1e-6) -> torch.Tensor:
    """(F(x + h e) − F(x − h e)) / 2h for every entry of a float64 tensor."""
    gradient = torch.zeros_like(x)
    flat, out = x.reshape(-1), gradient.reshape(-1)
    for k in range(flat.numel()):
        plus, minus = flat.clone(), flat.clone()
        plus[k] += step
        minus[k] -= step
        out[k] = (function(plus.reshape(x.shape)) - function(minus.reshape(x.shape))) / (2 * step)
    return gradient


def slopes_in_parts(function, x: torch.Tensor, gradient: torch.Tensor, step: float = 1e-6):
    """The slopes of F along directions that a gradient says, and those by central differences: each entry is in one
    direction, eight of them with random signs. An entry that is off shows as in a difference of its own, for an
    eighth of the work."""
    generator = torch.Generator().manual_seed(x.numel())
    signs = 2.0 * torch.randint(2, x.shape, generator=generator).to(x) - 1
    order = torch.randperm(x.numel(), generator=generator)
    told, found = [], []
    for part in order.split(8):
        direction = torch.zeros_like(x).reshape(-1)
        direction[part] = signs.reshape(-1)[part]
        direction = direction.reshape(x.shape)
        told.append(float((gradient * direction).sum()))
        plus, minus = (function(x + sign * step * direction) for sign in (1, -1))
        found.append(float(plus - minus) / (2 * step))
    return torch.tensor(told, dtype=torch.float64), torch.tensor(found, dtype=torch.float64)


def half_squared(x, y):
    """½‖x_i − y_j‖² by explicit differences."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return 0.5 * ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def root(matrix: torch.Tensor) -> torch.Tensor:
    """The symmetric square root of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.sqrt()) @ vectors.T


def optimal_matrix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The matrix of the optimal map from N(0, a) to N(0, b): a^(−½) (a^½ b a^½)^½ a^(−½)."""
    half = root(a)
    inverse = torch.linalg.inv(half)
    return inverse @ root(half @ b @ half) @ inverse


def cost(x, y) -> torch.Tensor:
    """½‖x_i − y_j‖² as a float64 tensor."""
    return torch.as_tensor(half_squared(x, y))


def pot_divergence(costs, a, b, epsilon: float) -> float:
    """The divergence of three float64 costs by POT; exact transport at epsilon 0."""
    import ot

    def value(cost, p, q):
        if epsilon == 0:
            return ot.emd2(p, q, cost)
        options = {"method": "sinkhorn_log", "numItermax": 100_000, "stopThr": 1e-13}
        plan = ot.sinkhorn(p, q, cost, epsilon, warn=False, **options)
        return primal_value(plan, cost, p, q, epsilon)

    (xy, xx, yy), a, b = map(np.asarray, costs), np.asarray(a), np.asarray(b)
    return value(xy, a, b) - value(xx, a, a) / 2 - value(yy, b, b) / 2


def slopes(function, x: torch.Tensor, step: float = 1e-5, seed: int = 0) -> tuple[float, float]:
    """The slope of F along a random direction: by autograd, and by central differences."""
    leaf = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf)
    way = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    ends = [float(function(x.detach() + sign * step * way)) for sign in (1, -1)]
    return float((gradient * way).sum()), (ends[0] - ends[1]) / (2 * step)
