"""Two datasets in one feature space, and the way back: image sizes, channels, columns, scale and
principal components.

Only changes that a few statistics describe are made here; learned embeddings are left to the cost.
"""

from advect.data.spaces.feature_space import FeatureSpace, harmonize

__all__ = ["FeatureSpace", "harmonize"]
