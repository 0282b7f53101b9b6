"""Two datasets in one feature space, and the way back: image sizes, channels, columns, features of
an encoder, scale and principal components.
"""

from advect.data.spaces.feature_space import FeatureSpace
from advect.data.spaces.harmonize import harmonize

__all__ = ["FeatureSpace", "harmonize"]
