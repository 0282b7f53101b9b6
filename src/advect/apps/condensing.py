"""A labeled dataset as a few synthetic samples of each class: class-wise k-means, then a flow.

Centres of k-means, weighted by their clusters' shares, already are the k points nearest to a class in
W₂. A flow goes on from there in what k-means does not see: the debiased energy, which does not shrink
toward means, and distances measured through a network (``Embedding``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_positive
from advect._util.html import facts_table
from advect._util.linalg import squared_distances
from advect._util.progress import Progress, track
from advect.apps.class_energy import ClassEnergy
from advect.apps.training import Classifier, Logistic, check_classifier, fit_on, score
from advect.cost import Embedding
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import brightness_range
from advect.errors import InputError
from advect.flows.dynamics import FeatureDriven, check_bounds
from advect.flows.integrators import Euler
from advect.flows.loop import FlowResult, flow
from advect.flows.steps import Step
from advect.ot import Relative, Sinkhorn, Solver

_SOLVER = Sinkhorn(Relative(0.1), tol=1e-3)
_STARTS: dict[str, Any] = {"n_init": 4}  # of k-means
_SOME = 1000  # samples by which the scale of an embedding is seen
Map = Callable[[Tensor], Any]


@dataclass(frozen=True, eq=False)
class Condensed:
    """A few samples for each class, and what they were made of.

    Attributes:
        dataset: the synthetic samples, weighted by the mass that each stands for.
        start: the centres of class-wise k-means, where the flow began.
        result: of the flow; ``values`` fall from the energy of the centres.
        data: what was condensed.  per_class: how many samples of each class were asked for.
        notes: what a careful user would want to know.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=100)
        >>> ad.apps.condense(digits, 2, n_steps=5, progress=False)
        Condensed(20 samples of 10 classes for 100, value 0.677 → 0.676)
    """

    dataset: LabeledDataset
    start: LabeledDataset
    result: FlowResult = field(repr=False)
    data: LabeledDataset = field(repr=False)
    per_class: int
    notes: tuple[str, ...] = ()
    seed: int = 0

    def __repr__(self) -> str:
        counts = [count for count in self.dataset.counts.values() if count]
        first, last = self.result.values[0], self.result.values[-1]
        return (
            f"Condensed({len(self.dataset)} samples of {len(counts)} classes for {len(self.data)}, "
            f"value {first:.3g} → {last:.3g})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "samples": f"{len(self.dataset):,} for {len(self.data):,}",
            "value": f"{self.result.values[0]:.4g} → {self.result.values[-1]:.4g}",
            **{f"note {k + 1}": note for k, note in enumerate(self.notes)},
        }
        return facts_table("Condensed", facts)

    @cached_property
    def medoids(self) -> LabeledDataset:
        """The real sample of the same class nearest to each centre of k-means."""
        x = self.start.x.clone()
        for code in self.start.y.unique().tolist():
            rows, of = self.start.y == code, self.data.x[self.data.y == code]
            x[rows] = of[squared_distances(self.start.x[rows], of).argmin(dim=1)]
        return self.start.replace(x=x)

    def random(self, seed: int | None = None) -> LabeledDataset:
        """As many real samples of each class, drawn at random, each with the same share of its
        class's mass.

        Args:
            seed: of the draw; that of ``condense`` by default.
        """
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        rows, weights = [], []
        mass = self.start.class_mass
        for code, count in enumerate(self.start.counts.values()):
            members = (self.data.y == code).nonzero()[:, 0]
            chosen = torch.randperm(len(members), generator=generator)[:count]
            rows.append(members[chosen.to(members.device)])
            weights.append((mass[code] / max(1, len(chosen))).expand(len(chosen)))
        return self.data.subset(torch.cat(rows)).replace(weights=torch.cat(weights))

    def evaluate(
        self, test: LabeledDataset, classifier: Classifier | None = None, *, seed: int = 0
    ) -> dict[str, float]:
        """Accuracy on a test part of models trained on the condensed set, on the centres of k-means,
        on the nearest real samples to these, on random samples, and on all data.

        The one to beat is k-means: where it is as good, take ``start``.

        Args:
            test: labeled samples that were not condensed, with the same classes.
            classifier: from a seed to a new trainer with ``fit(x, y)`` and ``predict(x)`` on tensors;
                logistic regression by default. Where ``fit`` takes ``sample_weight`` samples count by
                their mass.
            seed: of the trainers, and of the random samples.

        Example:
            >>> import torch, advect as ad
            >>> data, test = ad.datasets.load("digits", n=300).split(0.5, generator=torch.Generator().manual_seed(0))
            >>> scores = ad.apps.condense(data, 1, n_steps=5, progress=False).evaluate(test)
            >>> list(scores), scores["condensed"] > scores["random"]
            (['condensed', 'k-means', 'medoids', 'random', 'all data'], True)
        """
        check_kind("test must be a LabeledDataset", test, LabeledDataset, "Wrap arrays as such.")
        if test.classes != self.data.classes or test.sample_shape != self.data.sample_shape:
            raise InputError(
                "a test part must have the classes and sample shape of the data",
                f"{test.classes} of {test.sample_shape} with {self.data.classes} of "
                f"{self.data.sample_shape}",
                "Take both from one dataset: train, test = data.split(0.8).",
            )
        test.require_labels("a test part")
        check_classifier(classifier or Logistic)
        sets = {
            "condensed": self.dataset,
            "k-means": self.start,
            "medoids": self.medoids,
            "random": self.random(seed),
            "all data": self.data,
        }
        scores = {}
        for name, part in sets.items():
            model = (classifier or Logistic)(seed)
            fit_on(model.fit, part)
            scores[name] = score(model, test)
        return scores


def condense(
    data: LabeledDataset,
    per_class: int,
    *,
    embedding: Map | None = None,
    solver: Solver | None = None,
    n_steps: int = 20,
    step_size: float = 1.0,
    bounds: tuple[float, float] | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> Condensed:
    """Distil a labeled dataset into a few synthetic samples of each class.

    Each class starts as its k-means centres and flows down the debiased transport energy to its own
    samples; labels stay. For a small set to train on, to look at, or to hand on. In the features
    themselves the centres of k-means are hard to beat, and the flow changes them little; ``evaluate``
    says what it is worth on your data (docs/condense.md).

    Args:
        data: labeled samples; weights count.
        per_class: how many samples of each class; a class with no more distinct samples is kept
            whole, and a note says so.
        embedding: measure distances through this differentiable map of samples in their shape, such
            as the body of a network; features still are what moves.
        solver: of the transport problems; by default ``Sinkhorn(Relative(0.1), tol=1e-3)``.
        n_steps: steps of the flow, each made smaller until the value falls; 0 is k-means.
        step_size: of these, in units of the curvature of the energy: below 2 all is stable without
            an embedding.
        bounds: keep features in this range; images stay in theirs, 0 to 1 say.
        seed: of k-means.
        progress: None shows the steps on stderr, False is silent; or a function of (done, total).

    Example:
        >>> import advect as ad
        >>> made = ad.apps.condense(ad.datasets.load("digits", n=100), 3, n_steps=5, progress=False)
        >>> len(made.dataset), made.dataset.classes == made.data.classes, made.result.values[-1] <= made.result.values[0]
        (30, True, True)
    """
    remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
    check_kind("data must be a LabeledDataset", data, LabeledDataset, remedy)
    per_class, n_steps = (
        check_count("per_class", per_class),
        check_count("n_steps", n_steps, least=0),
    )
    check_positive("step_size", step_size)
    check_count("seed", seed, least=0)
    check_bounds(bounds)
    data.require_classes("condensing")
    data.require_labels("condensing")
    massive = data.subset(data.weights > 0) if bool((data.weights == 0).any()) else data
    massive = massive.replace(law=None, law_index=None)
    start, notes = _centres(massive, per_class, seed)
    feature = None if embedding is None else Embedding(embedding)
    size = step_size * (1.0 if feature is None else _unit(massive, feature))
    energy = ClassEnergy(massive, feature=feature, solver=solver or _SOLVER)
    kept = bounds or brightness_range((data.sample_shape, data.x))
    with track(n_steps + 1, "condensing", progress) as advance:

        def tick(step: Step) -> None:
            advance(1)

        result = flow(
            start,
            energy,
            dynamics=FeatureDriven(bounds=kept),
            integrator=Euler(size),
            n_steps=n_steps,
            callbacks=[tick],
        ).checked()
    best = result.dataset if result.best is None else result.best.dataset
    return Condensed(best, start, result, massive, per_class, tuple(notes), seed)


def _centres(data: LabeledDataset, k: int, seed: int) -> tuple[LabeledDataset, list[str]]:
    """Centres of k-means of each class, weighted by the mass of their clusters."""
    points, codes, weights, whole = [], [], [], []
    for code, name in enumerate(data.classes):
        rows = data.y == code
        if not bool(rows.any()):
            continue
        centres, mass = _class_centres(data.x[rows], data.weights[rows], k, seed)
        if len(centres) < k:
            whole.append(f"{name} ({len(centres)})")
        points.append(centres)
        weights.append(mass)
        codes += [code] * len(centres)
    y = torch.tensor(codes, device=data.y.device)
    weight = torch.cat(weights)
    start = data.subset(torch.arange(len(y), device=data.y.device)).replace(
        x=torch.cat(points), y=y, weights=weight / weight.sum()
    )
    notes = []
    if whole:
        shown = ", ".join(whole[:5]) + (f" and {len(whole) - 5} more" if len(whole) > 5 else "")
        notes.append(f"Classes with fewer than {k} distinct samples are kept whole: {shown}.")
    return start, notes


def _class_centres(x: Tensor, mass: Tensor, k: int, seed: int) -> tuple[Tensor, Tensor]:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points, weights = x.detach().cpu().double().numpy(), mass.cpu().double().numpy()
    middle = np.average(points, axis=0, weights=weights)
    points = points - middle  # sums of squares far from zero lose their digits
    distinct, of = np.unique(points, axis=0, return_inverse=True)
    of = of.reshape(-1)
    if len(distinct) <= k:
        centres, labels = distinct, of
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found: Any = KMeans(k, **_STARTS, random_state=seed)
            found.fit(points, sample_weight=weights)
        centres, labels = found.cluster_centers_, found.labels_
    shares = np.bincount(labels, weights, minlength=len(centres))
    kept = shares > 0
    made = torch.tensor(centres[kept] + middle).to(x.device, x.dtype)
    return made, torch.tensor(shares[kept]).to(mass)


def _unit(data: LabeledDataset, feature: Embedding) -> float:
    """The squared scale of features over that of their images: the inverse of a mean curvature."""
    some = data.subset(torch.arange(0, len(data), max(1, len(data) // _SOME)))
    with torch.no_grad():
        image = feature.embed(some).detach().double()
    spread, moved = (
        part.var(dim=0).sum() if len(part) > 1 else 0 for part in (some.x.double(), image)
    )
    ratio = float(spread) / float(moved) if float(moved) > 0 else 1.0
    return ratio if ratio > 0 else 1.0
