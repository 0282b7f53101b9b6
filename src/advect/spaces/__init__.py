"""Feature spaces common to two datasets, and the maps back: image sizes, channels, columns, scale and
principal components.
"""

from advect.spaces.feature_space import FeatureSpace, harmonize

__all__ = ["FeatureSpace", "harmonize"]
