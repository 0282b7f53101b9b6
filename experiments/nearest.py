"""Which of thirty datasets is nearest? ``ad.DatasetIndex`` beside exact distances between all pairs,
and beside cheaper summaries that a sceptic would ask for.

A draw has thirty sets of 14 × 14 gray images: two disjoint draws of each of eight datasets, halves
of the classes, images turned by a quarter, images with noise. The truth is the exact OTDD between
all pairs (``solver=ExactOT()``). Each set is asked for among the 29 others: recall@k is the share of
its k exact nearest that are among the k found, "same set" how often another draw of the same dataset
comes first where there is one, and the rank correlation is Spearman's over all 435 pairs. "exact
OTDD, other samples" is how far the truth agrees with itself when all sets are drawn again.

Directions and levels are the defaults of the library, which no draw was looked at for; ``settings``
says on another draw what others would give. ``growth`` indexes synthetic sets, and ``labels`` asks
whether a way notices labels at all."""

from __future__ import annotations

import sys
import tempfile
import time
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import advect as ad

NAME = "nearest"
RECOMMENDED = "index, 10 best by OTDD"  # named in advance
DATASETS = (
    *("mnist", "usps", "kmnist", "fashion_mnist", "emnist_letters", "cifar10", "stl10"),
    "camelyon",
)
HALVES = ("mnist", "usps", "kmnist", "fashion_mnist", "emnist_letters", "cifar10")
TURNED = ("mnist", "usps", "fashion_mnist", "stl10")
NOISED = ("mnist", "kmnist", "cifar10", "camelyon")
SAMPLES, SIDE, NOISE = 200, 14, 0.2
RERANK = 10
SEEDS = tuple(range(3))
COUNTS = (10, 100, 1000)  # synthetic sets
DIRECTIONS, LEVELS = (16, 32, 64, 128, 196), (8, 32, 128)
SYNTHETIC = {"samples": 500, "dim": 64, "classes": 10}


def cells() -> dict[str, dict[str, Any]]:
    growing = {f"growth, {count} sets, draw 0": {"seed": 0, "count": count} for count in COUNTS}
    thirty = {
        f"{part}, draw {seed}": {"seed": seed, "part": part} for seed in SEEDS for part in PARTS
    }
    shuffled = {f"labels, draw {seed}": {"seed": seed, "shuffled": True} for seed in SEEDS}
    return growing | thirty | shuffled | {"settings, draw 100": {"seed": 100}}


def run(
    seed: int, count: int | None = None, shuffled: bool = False, part: str = ""
) -> dict[str, Any]:
    if count is not None:
        return growth(count, seed)
    if shuffled:
        return labels(seed)
    return PARTS[part](seed) if part else study(seed)


def study(seed: int) -> dict[str, Any]:
    """What other numbers of directions and levels would give."""
    sets = drawn(seed)
    truth, names, found = exact(sets), list(sets), {}
    for n_directions in DIRECTIONS:
        for n_levels in LEVELS:
            options = {"n_directions": n_directions, "n_levels": n_levels}
            apart = gaps(np.stack([ad.embed(data, **options).vector for data in sets.values()]))
            scores = scored(nearest(apart), truth, names) | {"spearman": spearman(apart, truth)}
            found[f"{n_directions} directions, {n_levels} levels"] = scores
    return {"scores": found}


def thirty(seed: int) -> dict[str, Any]:
    """Exact distances, and how far each way agrees with them."""
    sets = drawn(seed)
    begun = time.process_time()
    truth = exact(sets)
    seconds = {"exact OTDD": time.process_time() - begun}
    ways = BASELINES | {"index": indexed}
    names, scores = list(sets), {"exact OTDD": scored(nearest(truth), truth, list(sets))}
    scores["exact OTDD"]["spearman"] = 1.0
    for name, way in ways.items():
        begun = time.process_time()
        apart = way(list(sets.values()))
        seconds[name] = time.process_time() - begun
        scores[name] = scored(nearest(apart), truth, names)
        scores[name]["spearman"] = spearman(apart, truth)
    exactly = truth[np.triu_indices(len(sets), 1)].tolist()
    return {"scores": scores, "processor seconds of ways": seconds, "exact": exactly}


def reranked(seed: int) -> dict[str, Any]:
    """Positions of the five nearest that an index finds for each set, with exact distances
    of the best.
    """
    sets = drawn(seed)
    names, begun = list(sets), time.process_time()
    index = ad.DatasetIndex(sets[names[0]], keep=SAMPLES)
    for name, data in sets.items():
        index.add(name, data)
    answers = [index.nearest(name, 5, rerank=RERANK, progress=False).names for name in names]
    found = [[names.index(one) for one in answer] for answer in answers]
    return {"found": found, "processor seconds of all": time.process_time() - begun, "sets": names}


def redrawn(seed: int) -> dict[str, Any]:
    """Exact distances between other samples of the same sets."""
    sets = drawn(seed + 1000)
    return {"exact": exact(sets)[np.triu_indices(len(sets), 1)].tolist()}


PARTS = {"thirty sets": thirty, "reranked": reranked, "other samples": redrawn}


def matrix(above: list[float]) -> np.ndarray:
    """Distances from those above the diagonal."""
    from scipy.spatial.distance import squareform

    return squareform(np.array(above))


def labels(seed: int) -> dict[str, Any]:
    """How often a fresh draw of a dataset is nearer than a fresh draw with its labels shuffled."""
    generator = torch.Generator().manual_seed(seed + 500)
    ways = BASELINES | {"index": indexed}
    ways["exact OTDD"] = lambda sets: exact({str(at): data for at, data in enumerate(sets)})
    found: dict[str, list[bool]] = {way: [] for way in ways}
    for name in DATASETS:
        rows = torch.randperm(len(images(name)), generator=generator)[: 3 * SAMPLES]
        mine, fresh, mixed = (images(name).subset(part) for part in rows.split(SAMPLES))
        mixed = mixed.replace(y=mixed.y[torch.randperm(SAMPLES, generator=generator)])
        for way, measure in ways.items():
            apart = measure([mine, fresh, mixed])
            found[way].append(bool(apart[0, 1] < apart[0, 2]))
    return {"right labels nearer": {way: float(np.mean(each)) for way, each in found.items()}}


def growth(count: int, seed: int) -> dict[str, Any]:
    """Time to index so many synthetic sets, and to ask for the neighbours of one."""
    n, dim, k = SYNTHETIC["samples"], SYNTHETIC["dim"], SYNTHETIC["classes"]
    generator = torch.Generator().manual_seed(seed)

    def synthetic() -> ad.LabeledDataset:
        y = torch.arange(n) % k
        centres = 3 * torch.randn(k, dim, generator=generator)
        return ad.LabeledDataset(centres[y] + torch.randn(n, dim, generator=generator), y)

    query = synthetic()
    ad.otdd(query, synthetic(), solver=ad.ExactOT())  # imports what is needed
    with tempfile.TemporaryDirectory() as folder:
        index = ad.DatasetIndex(query)
        sets = {f"set {at}": synthetic() for at in range(count)}
        begun = time.process_time(), time.perf_counter()
        for name, data in sets.items():
            index.add(name, data)
        path = index.save(f"{folder}/sets.index")
        times = {
            "adding": time.process_time() - begun[0],
            "adding, on the clock": time.perf_counter() - begun[1],
        }
        asked = {"asking": 0, "asking again": 0, "asking, reranked": RERANK}
        busy = time.process_time()
        index = ad.DatasetIndex.load(path)
        for name, rerank in asked.items():
            index.nearest(query, 5, rerank=rerank, progress=False)
            times[name] = time.process_time() - busy
            busy = time.process_time()
        size = path.stat().st_size
    others = [synthetic() for _ in range(3)]
    busy = time.process_time()
    for other in others:
        ad.otdd(query, other, solver=ad.ExactOT())
    times["an exact distance"] = (time.process_time() - busy) / len(others)
    times["all pairs"] = times["an exact distance"] * count * (count - 1) / 2
    return {"times": times, "bytes": size}


def drawn(seed: int) -> dict[str, ad.LabeledDataset]:
    """The thirty sets of a draw, "dataset/what"; the samples of no two overlap."""
    generator = torch.Generator().manual_seed(seed)
    plans = [(name, "1") for name in DATASETS] + [(name, "2") for name in DATASETS]
    plans += [(name, "half") for name in HALVES] + [(name, "turned") for name in TURNED]
    plans += [(name, "noise") for name in NOISED]
    orders = {name: torch.randperm(len(images(name)), generator=generator) for name in DATASETS}
    sets = {}
    for name, what in plans:
        data, order = images(name), orders[name]
        fits = data.y[order] < (len(data.classes) // 2 if what == "half" else len(data.classes))
        places = fits.nonzero().flatten()[:SAMPLES]
        chosen = order[places]
        orders[name] = order[int(places[-1]) + 1 :]  # what was passed over is not drawn again
        part = data.subset(chosen)
        sets[f"{name}/{what}"] = part.replace(x=changed(part, what, generator))
    return sets


def changed(data: ad.LabeledDataset, what: str, generator: torch.Generator) -> Tensor:
    if what == "turned":
        return data.samples.rot90(1, (1, 2)).flatten(1)
    if what == "noise":
        return (data.x + NOISE * torch.randn(data.x.shape, generator=generator)).clamp(0, 1)
    return data.x


@cache
def images(name: str) -> ad.LabeledDataset:
    """Up to 4000 training images, small and gray."""
    data = ad.datasets.load(f"{name}?max_samples=4000&seed=0")
    return ad.FeatureSpace.fit(data, data, size=SIDE, channels="gray").apply(data)


def exact(sets: dict[str, ad.LabeledDataset]) -> np.ndarray:
    return ad.pairwise(sets, solver=ad.ExactOT(), progress=False).values


def indexed(sets: list[ad.LabeledDataset]) -> np.ndarray:
    """By the vectors of an index."""
    return gaps(np.stack([ad.embed(data).vector for data in sets]))


def embeddings(sets: list[ad.LabeledDataset]) -> np.ndarray:
    """Without labels."""
    return gaps(np.stack([ad.embed(data, label_weight=0).vector for data in sets]))


def means(sets: list[ad.LabeledDataset]) -> np.ndarray:
    return gaps(np.stack([data.x.double().mean(dim=0).numpy() for data in sets]))


def frechet(sets: list[ad.LabeledDataset]) -> np.ndarray:
    """Between Gaussians of all features, without labels."""
    laws = [data.replace(y=torch.zeros_like(data.y), classes=("all",)).laws() for data in sets]
    found = np.zeros((len(sets), len(sets)))
    for i, one in enumerate(laws):
        for j, other in enumerate(laws[:i]):
            found[i, j] = found[j, i] = float(ad.bures(one, other)) ** 0.5
    return found


def class_means(sets: list[ad.LabeledDataset]) -> np.ndarray:
    """Transport between means of classes, by mass."""
    import ot

    held = [(data.laws().means.numpy(), data.class_mass.numpy()) for data in sets]
    found = np.zeros((len(sets), len(sets)))
    for i, (x, a) in enumerate(held):
        for j, (y, b) in enumerate(held[:i]):
            found[i, j] = found[j, i] = np.sqrt(ot.emd2(a, b, ot.dist(x, y)))
    return found


BASELINES = {
    "vectors without labels": embeddings,
    "means of features": means,
    "Fréchet distance of features": frechet,
    "transport of class means": class_means,
}


def gaps(vectors: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import pdist, squareform

    return squareform(pdist(vectors))


def nearest(distances: np.ndarray) -> np.ndarray:
    """Positions of the others, the nearest first, (k, k − 1)."""
    away = distances + np.diag(np.full(len(distances), np.inf))
    return np.argsort(away, axis=1, kind="stable")[:, :-1]


def scored(found: np.ndarray, truth: np.ndarray, names: list[str]) -> dict[str, float]:
    """Recall of the exact nearest, and how often another draw of the same dataset comes first."""
    right = nearest(truth)
    pairs = [(at, name) for at, name in enumerate(names) if name.endswith(("/1", "/2"))]
    twins = {name: name[:-1] + ("2" if name.endswith("1") else "1") for _, name in pairs}
    return {
        "recall@1": float(np.mean(found[:, 0] == right[:, 0])),
        "recall@5": float(
            np.mean([len({*a} & {*b}) / 5 for a, b in zip(found[:, :5], right[:, :5], strict=True)])
        ),
        "same set": float(np.mean([names[found[at, 0]] == twins[name] for at, name in pairs])),
    }


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import spearmanr

    pairs = np.triu_indices(len(one), 1)
    found: Any = spearmanr(one[pairs], other[pairs])
    return float(found.statistic)


def draw(path: str) -> None:
    """The map of the sets of the first draw (metric scaling), in the colours of their datasets."""
    from matplotlib.figure import Figure
    from sklearn.manifold import MDS

    sets = drawn(SEEDS[0])
    apart = gaps(np.stack([ad.embed(data).vector for data in sets.values()]))
    found = MDS(2, dissimilarity="precomputed", random_state=0).fit_transform(apart)
    points = np.asarray(found)
    groups = [name.partition("/")[0] for name in sets]
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot(title="Thirty sets")
    for group in dict.fromkeys(groups):
        axes.scatter(*points[[other == group for other in groups]].T, s=24, label=group)
    for name, point in zip(sets, points, strict=True):
        axes.annotate(name, point, (3, 2), textcoords="offset points", fontsize=5.5)
    figure.legend(loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(sys.argv[1])
