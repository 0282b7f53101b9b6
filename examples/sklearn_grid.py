"""A scikit-learn search over the settings of a transport, by the accuracy on labeled target samples."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid

import advect as ad

x, y = load_digits(return_X_y=True)
source, target, fresh = slice(0, 500), slice(500, 800), slice(800, 1797)
tilted = np.array([np.roll(image, 2, axis=1) for image in x.reshape(-1, 8, 8)]).reshape(-1, 64)


def accuracy(rows: slice, **settings: float) -> float:
    """Train on the moved source, test on samples of the target domain."""
    transport = ad.DatasetTransport(**settings).fit(x[source], y[source], tilted[target], y[target])
    model = LogisticRegression(max_iter=2000).fit(transport.transform(x[source]), y[source])
    return model.score(tilted[rows], y[rows])


grid = ParameterGrid({"label_weight": [0.5, 2.0], "n_steps": [10, 30]})
best = max(grid, key=lambda settings: accuracy(target, **settings))
alone = LogisticRegression(max_iter=2000).fit(x[source], y[source]).score(tilted[fresh], y[fresh])
print(best, f"accuracy {alone:.2f} without, {accuracy(fresh, **best):.2f} with the transport")
