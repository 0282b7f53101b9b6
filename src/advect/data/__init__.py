"""The labeled dataset: construction, sampling, conversions, label laws and storage."""

from advect.data.dataset import LabeledDataset as LabeledDataset
from advect.data.labels import (
    diagonal_laws as diagonal_laws,
    estimated_laws as estimated_laws,
    label_samples as label_samples,
    law_rows as law_rows,
    memberships as memberships,
    occurring_classes as occurring_classes,
    require_classes as require_classes,
    require_hard as require_hard,
    require_labels as require_labels,
    require_targets as require_targets,
    with_class_laws as with_class_laws,
    with_shared_laws as with_shared_laws,
)
