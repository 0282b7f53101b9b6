"""The public names of advect, each with the room it lives in: the one list that ``__init__.py`` reads."""

from . import (
    apps as apps,
    classes as classes,
    datasets as datasets,
    distributed as distributed,
    errors as errors,
    maps as maps,
    ot as ot,
    testing as testing,
    viz as viz,
)
from ._util.memory import (
    ScaleWarning as ScaleWarning,
)
from ._util.registry import (
    register as register,
)
from .apps.barycenter import (
    Barycenter as Barycenter,
    barycenter as barycenter,
)
from .apps.estimators import (
    DatasetTransport as DatasetTransport,
)
from .apps.interpolate import (
    Interpolated as Interpolated,
    InterpolationPath as InterpolationPath,
    interpolate as interpolate,
)
from .apps.pairwise import (
    pairwise as pairwise,
)
from .apps.pairwise_table import (
    Pairwise as Pairwise,
)
from .apps.suggest import (
    Advice as Advice,
    Suggestion as Suggestion,
    suggest as suggest,
)
from .apps.sweep import (
    Sweep as Sweep,
    sweep as sweep,
)
from .apps.triangle import (
    Triangle as Triangle,
    triangle as triangle,
)
from .classes import (
    DBSCAN as DBSCAN,
    HDBSCAN as HDBSCAN,
    AnyClusterer as AnyClusterer,
    GaussianMixture as GaussianMixture,
    KMeans as KMeans,
    PseudoLabels as PseudoLabels,
    Spectral as Spectral,
    Ward as Ward,
    fill_labels as fill_labels,
    pseudo_labels as pseudo_labels,
    spread_labels as spread_labels,
)
from .classes.dimensions import (
    align as align,
)
from .classes.matching import (
    ClassMatching as ClassMatching,
)
from .classes.shares import (
    ClassShares as ClassShares,
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
    PairCost as PairCost,
    Sketch as Sketch,
    SquaredEuclidean as SquaredEuclidean,
    TargetLaws as TargetLaws,
    TargetValues as TargetValues,
)
from .data.class_table import (
    ClassTable as ClassTable,
)
from .data.dataset import (
    LabeledDataset as LabeledDataset,
)
from .data.laws import (
    Covariance as Covariance,
    Diagonal as Diagonal,
    Factored as Factored,
    Full as Full,
    Gaussians as Gaussians,
    bures as bures,
)
from .data.spaces import (
    FeatureSpace as FeatureSpace,
    harmonize as harmonize,
)
from .datasets.statistics import (
    ClassStatistics as ClassStatistics,
)
from .datasets.trajectory import (
    Trajectory as Trajectory,
)
from .errors import (
    AdvectError as AdvectError,
    ConvergenceWarning as ConvergenceWarning,
    DamageWarning as DamageWarning,
    InputError as InputError,
)
from .flows.callbacks import (
    Checkpoint as Checkpoint,
    Metric as Metric,
    Progress as Progress,
    Recorder as Recorder,
    StopWhen as StopWhen,
)
from .flows.control import (
    Backtracking as Backtracking,
    FixedSteps as FixedSteps,
)
from .flows.dynamics import (
    FeatureDriven as FeatureDriven,
    JointFixedLabels as JointFixedLabels,
    JointVariableLabels as JointVariableLabels,
)
from .flows.integrators import (
    Adagrad as Adagrad,
    Adam as Adam,
    Decay as Decay,
    Euler as Euler,
    EulerMaruyama as EulerMaruyama,
    Heun as Heun,
    Integrator as Integrator,
    Momentum as Momentum,
)
from .flows.joint_targets import (
    JointTargets as JointTargets,
)
from .flows.law_motion import (
    BuresMotion as BuresMotion,
    DiagonalMotion as DiagonalMotion,
    EuclideanMotion as EuclideanMotion,
    FactoredMotion as FactoredMotion,
)
from .flows.loop import (
    flow as flow,
)
from .flows.proximal import (
    Proximal as Proximal,
)
from .flows.result import (
    FlowResult as FlowResult,
)
from .flows.steps import (
    Step as Step,
    iterate as iterate,
)
from .functionals import (
    OTDD as OTDD,
    ClassDiscrepancy as ClassDiscrepancy,
    ClassMMD as ClassMMD,
    Functional as Functional,
    Interaction as Interaction,
    Internal as Internal,
    Potential as Potential,
    Radial as Radial,
    Scaled as Scaled,
    SlicedDistance as SlicedDistance,
    SlicedOTDD as SlicedOTDD,
    Sum as Sum,
    affine_norm as affine_norm,
    attraction as attraction,
    ball as ball,
    class_mmd as class_mmd,
    collapse as collapse,
    hinge as hinge,
    norm as norm,
    repulsion as repulsion,
    sliced_otdd as sliced_otdd,
    spreading as spreading,
)
from .maps.pair_sampler import (
    PairSampler as PairSampler,
)
from .ot import (
    ExactOT as ExactOT,
    MiniBatch as MiniBatch,
    NystromSinkhorn as NystromSinkhorn,
    Relative as Relative,
    Sinkhorn as Sinkhorn,
    Solution as Solution,
)
from .questions.audit import (
    audit as audit,
)
from .questions.audit_result import (
    Audit as Audit,
)
from .questions.compare import (
    compare as compare,
)
from .questions.compare_result import (
    Compared as Compared,
)
from .questions.drift import (
    drift as drift,
)
from .questions.drift_monitor import (
    DriftMonitor as DriftMonitor,
)
from .questions.drift_result import (
    Drift as Drift,
)
from .questions.embedding import (
    DatasetEmbedding as DatasetEmbedding,
    embed as embed,
)
from .questions.embedding_sketch import (
    EmbeddingSketch as EmbeddingSketch,
)
from .questions.index import (
    DatasetIndex as DatasetIndex,
)
from .transport.distance import (
    Distance as Distance,
    otdd as otdd,
)
from .transport.notes import (
    Note as Note,
)

__version__: str
__all__: list[str]
