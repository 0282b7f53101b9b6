"""The public names of advect, each with the room it lives in: the one list that ``__init__.py`` reads."""

from . import (
    apps as apps,
    datasets as datasets,
    distributed as distributed,
    maps as maps,
    ot as ot,
    testing as testing,
    viz as viz,
)
from .apps.adapt import (
    adapt as adapt,
)
from .apps.adapting import (
    ClassReweighting as ClassReweighting,
    TransportClassifier as TransportClassifier,
    TransportRegressor as TransportRegressor,
)
from .apps.estimators import (
    DatasetTransport as DatasetTransport,
    LabelSpreader as LabelSpreader,
)
from .apps.interpolate import (
    interpolate as interpolate,
)
from .apps.pairwise import (
    pairwise as pairwise,
)
from .classes.matching import (
    ClassMatching as ClassMatching,
)
from .classes.pseudo import (
    fill_labels as fill_labels,
    pseudo_labels as pseudo_labels,
)
from .classes.shares import (
    class_shares as class_shares,
)
from .cost import (
    Bures as Bures,
    ByName as ByName,
    Embedding as Embedding,
    ExactLabelOT as ExactLabelOT,
    FeatureCost as FeatureCost,
    GroundCost as GroundCost,
    LabelCost as LabelCost,
    MeansOnly as MeansOnly,
    NoLabels as NoLabels,
    SquaredEuclidean as SquaredEuclidean,
    TargetValues as TargetValues,
)
from .data.dataset import (
    LabeledDataset as LabeledDataset,
)
from .data.laws import (
    Gaussians as Gaussians,
    bures as bures,
)
from .errors import (
    InputError as InputError,
)
from .flows.callbacks import (
    Checkpoint as Checkpoint,
    Metric as Metric,
    Progress as Progress,
    Recorder as Recorder,
    StopWhen as StopWhen,
)
from .flows.choices import (
    suggest as suggest,
)
from .flows.dynamics import (
    FeatureDriven as FeatureDriven,
    JointFixedLabels as JointFixedLabels,
    JointTargets as JointTargets,
    JointVariableLabels as JointVariableLabels,
)
from .flows.integrators import (
    Adam as Adam,
    Decay as Decay,
    Euler as Euler,
    EulerMaruyama as EulerMaruyama,
    Heun as Heun,
    Integrator as Integrator,
    Momentum as Momentum,
)
from .flows.loop import (
    flow as flow,
)
from .flows.steps import (
    Backtracking as Backtracking,
    FixedSteps as FixedSteps,
    iterate as iterate,
)
from .flows.trackers import (
    Log as Log,
)
from .functionals import (
    OTDD as OTDD,
    Functional as Functional,
    Interaction as Interaction,
    Internal as Internal,
    Potential as Potential,
    SlicedOTDD as SlicedOTDD,
    affine_norm as affine_norm,
    attraction as attraction,
    ball as ball,
    collapse as collapse,
    hinge as hinge,
    norm as norm,
    repulsion as repulsion,
    sliced_otdd as sliced_otdd,
    spreading as spreading,
)
from .io.trajectory import (
    Trajectory as Trajectory,
)
from .maps.pair_sampler import (
    PairSampler as PairSampler,
)
from .ot.exact import (
    ExactOT as ExactOT,
)
from .ot.minibatch import (
    MiniBatch as MiniBatch,
)
from .ot.sinkhorn import (
    Relative as Relative,
    Sinkhorn as Sinkhorn,
)
from .questions.audit import (
    audit as audit,
)
from .questions.audit_filter import (
    AuditFilter as AuditFilter,
)
from .questions.compare import (
    compare as compare,
)
from .questions.drift import (
    drift as drift,
)
from .questions.embedding import (
    embed as embed,
)
from .questions.index import (
    DatasetIndex as DatasetIndex,
)
from .registry import (
    register as register,
)
from .spaces import (
    FeatureSpace as FeatureSpace,
    harmonize as harmonize,
)
from .transport.distance import (
    otdd as otdd,
)

__version__: str
__all__: list[str]
