"""What a dataset of few samples can be made into: class laws with a share of better known ones, and a
density around the samples in place of the samples (beyond the paper).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from advect._util.checks import check_count, check_kind, check_known
from advect.data.laws import Gaussians
from advect.data.laws.ledoit_wolf import ledoit_wolf_shares
from advect.data.laws.moments import centred_classes, weigh
from advect.data.laws.shrinkage import aim
from advect.data.sampling import by_turns
from advect.errors import InputError


class FewSamples:
    """What ``LabeledDataset`` has for classes of few samples; it has the fields."""

    x: Tensor
    y: Tensor
    weights: Tensor
    classes: tuple[Hashable, ...]
    if TYPE_CHECKING:

        def label_samples(self) -> tuple[Tensor, Tensor, Tensor]: ...
        def moments(self) -> Gaussians: ...
        def require_hard(self, who: str) -> None: ...
        def require_labels(self, who: str) -> None: ...
        def replace(self, **changes: Any) -> Any: ...

    def shrunk_laws(
        self,
        toward: Gaussians | Literal["pooled", "spherical"] = "pooled",
        share: float | Tensor | Literal["ledoit-wolf"] = "ledoit-wolf",
        *,
        rescale: bool = False,
    ) -> Gaussians:
        """Gaussian laws of the classes with covariances pulled toward others:
        (1 − λ) S_y + λ T_y around the class means.

        For classes of few samples, whose own covariances are too narrow; a law with ``share=1.0``
        toward ``"pooled"`` is linear discriminant analysis' view of the classes. See
        ``Gaussians.shrunk``.

        Args:
            toward: ``"pooled"``, the covariance within classes of all samples (each class by its
                degrees of freedom, n − 1); ``"spherical"``, the ball of the same trace; or laws, one
                for each class or one for all, such as ``ad.classes.borrowed_laws(source, few)``.
            share: λ, a number or one for each class; ``"ledoit-wolf"`` estimates it class by class
                from the samples (Ledoit and Wolf 2004), with 1 for classes of one or two, which tell
                nothing of it.
            rescale: give T_y the trace of S_y.

        Returns:
            Laws in float64, factored where T is.

        Example:
            >>> import torch, advect as ad
            >>> x = torch.randn(12, 30, generator=torch.Generator().manual_seed(0))
            >>> few = ad.LabeledDataset(x, ["a", "b", "c"] * 4)
            >>> laws = few.shrunk_laws()
            >>> [torch.linalg.matrix_rank(S).item() for S in laws.covariances()]    # not 3
            [9, 9, 9]
        """
        laws, k = self.moments(), len(self.classes)
        x, y, weights = self.label_samples()
        _, freedom, _ = weigh(y, weights, k)
        # n − 1 for n equal weights
        mass = freedom / (1 - freedom).clamp_min(torch.finfo(torch.float64).eps)
        mass = torch.where(freedom > 0, mass, 0)
        target = aim(laws.covariance, toward, rescale=rescale, mass=mass)
        if isinstance(share, str):
            check_known("share", share, ("ledoit-wolf",))
            found = centred_classes(x, y, weights, k)
            share = ledoit_wolf_shares(found, laws.covariance, target)
        return laws.shrunk(Gaussians(laws.means, target), share)

    def smoothed(
        self,
        laws: Gaussians,
        n: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Samples with noise of their class's law: draws of the density Σ w_i N(x_i, S_(y_i)).

        A flow to a few samples ends on them; a flow to these ends around them. With the covariances
        of other data it is those that say what is around (``shrunk_laws``,
        ``ad.classes.borrowed_laws``).

        Args:
            laws: one for each class, in their order; their means do not count.
            n: how many; each sample has its turn, as often as its weight says. By default each sample
                once, with its weight.
            generator: source of randomness, for repeatable draws.

        Raises:
            InputError: samples without a label, or laws that do not fit the classes or features.

        Example:
            >>> import torch, advect as ad
            >>> few = ad.LabeledDataset([[0.0, 0.0], [9.0, 0.0]], ["a", "b"])
            >>> laws = ad.Gaussians(torch.zeros(2, 2), ad.Diagonal(torch.tensor([[0.0, 1.0], [0.0, 0.0]])))
            >>> many = few.smoothed(laws, 400, generator=torch.Generator().manual_seed(0))
            >>> many.counts, many.x[:, 0].unique().tolist(), round(many.of_class("a").x[:, 1].std().item())
            ({'a': 200, 'b': 200}, [0.0, 9.0], 1)
        """
        self.require_hard("smoothing")
        self.require_labels("smoothing")
        check_kind("smoothing needs class laws", laws, Gaussians, "Take data.shrunk_laws(…).")
        if len(laws) != len(self.classes) or laws.dim != self.x.shape[1]:
            raise InputError(
                f"smoothing needs laws of the {len(self.classes)} classes, of dimension {self.x.shape[1]}",
                f"{len(laws)} of dimension {laws.dim}",
                "Take them from data.shrunk_laws(…) or ad.classes.borrowed_laws(source, data).",
            )
        weights, x, y = self.weights, self.x, self.y
        if n is not None:
            rows = by_turns(self.weights, check_count("n", n), generator).sort().values
            weights, x, y = weights.new_full((n,), 1 / n), x[rows], y[rows]
        noise = laws.to(x.device).sample(y, centred=True, generator=generator)
        moved = (x.double() + noise).to(x)
        return self.replace(x=moved, y=y, weights=weights, law=None, law_index=None)
