"""The public names of advect, each with the room it lives in: the one list that ``__init__.py`` reads."""

from . import apps as apps
from . import classes as classes
from . import datasets as datasets
from . import distributed as distributed
from . import errors as errors
from . import maps as maps
from . import ot as ot
from . import viz as viz
from ._util.memory import (
    ScaleWarning as ScaleWarning,
)
from .apps.estimators import (
    DatasetTransport as DatasetTransport,
)
from .apps.pairwise import (
    Pairwise as Pairwise,
)
from .apps.pairwise import (
    pairwise as pairwise,
)
from .apps.sweep import (
    Sweep as Sweep,
)
from .apps.sweep import (
    sweep as sweep,
)
from .classes import (
    HDBSCAN as HDBSCAN,
)
from .classes import (
    GaussianMixture as GaussianMixture,
)
from .classes import (
    PseudoLabels as PseudoLabels,
)
from .classes import (
    Spectral as Spectral,
)
from .classes import (
    Ward as Ward,
)
from .classes import (
    fill_labels as fill_labels,
)
from .classes import (
    pseudo_labels as pseudo_labels,
)
from .classes.clustering import (
    DBSCAN as DBSCAN,
)
from .classes.clustering import (
    AnyClusterer as AnyClusterer,
)
from .classes.clustering import (
    KMeans as KMeans,
)
from .classes.matching import (
    ClassMatching as ClassMatching,
)
from .cost import (
    Bures as Bures,
)
from .cost import (
    Embedding as Embedding,
)
from .cost import (
    ExactLabelOT as ExactLabelOT,
)
from .cost import (
    GroundCost as GroundCost,
)
from .cost import (
    MeansOnly as MeansOnly,
)
from .cost import (
    NoLabels as NoLabels,
)
from .cost import (
    PairCost as PairCost,
)
from .cost import (
    Sketch as Sketch,
)
from .cost import (
    SquaredEuclidean as SquaredEuclidean,
)
from .data.class_table import (
    ClassTable as ClassTable,
)
from .data.dataset import (
    LabeledDataset as LabeledDataset,
)
from .data.gaussians import (
    Diagonal as Diagonal,
)
from .data.gaussians import (
    Factored as Factored,
)
from .data.gaussians import (
    Full as Full,
)
from .data.gaussians import (
    Gaussians as Gaussians,
)
from .data.gaussians import (
    bures as bures,
)
from .data.spaces import (
    FeatureSpace as FeatureSpace,
)
from .data.spaces import (
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
)
from .errors import (
    ConvergenceWarning as ConvergenceWarning,
)
from .errors import (
    DamageWarning as DamageWarning,
)
from .errors import (
    InputError as InputError,
)
from .flows.callbacks import (
    Checkpoint as Checkpoint,
)
from .flows.callbacks import (
    Metric as Metric,
)
from .flows.callbacks import (
    Progress as Progress,
)
from .flows.callbacks import (
    Recorder as Recorder,
)
from .flows.callbacks import (
    StopWhen as StopWhen,
)
from .flows.control import (
    Backtracking as Backtracking,
)
from .flows.control import (
    FixedSteps as FixedSteps,
)
from .flows.dynamics import (
    FeatureDriven as FeatureDriven,
)
from .flows.dynamics import (
    JointFixedLabels as JointFixedLabels,
)
from .flows.dynamics import (
    JointVariableLabels as JointVariableLabels,
)
from .flows.integrators import (
    Adagrad as Adagrad,
)
from .flows.integrators import (
    Adam as Adam,
)
from .flows.integrators import (
    Decay as Decay,
)
from .flows.integrators import (
    Euler as Euler,
)
from .flows.integrators import (
    EulerMaruyama as EulerMaruyama,
)
from .flows.integrators import (
    Momentum as Momentum,
)
from .flows.law_motion import (
    BuresMotion as BuresMotion,
)
from .flows.law_motion import (
    DiagonalMotion as DiagonalMotion,
)
from .flows.law_motion import (
    EuclideanMotion as EuclideanMotion,
)
from .flows.law_motion import (
    FactoredMotion as FactoredMotion,
)
from .flows.loop import (
    Step as Step,
)
from .flows.loop import (
    flow as flow,
)
from .flows.loop import (
    iterate as iterate,
)
from .flows.result import (
    FlowResult as FlowResult,
)
from .functionals import (
    OTDD as OTDD,
)
from .functionals import (
    Functional as Functional,
)
from .functionals import (
    Interaction as Interaction,
)
from .functionals import (
    Internal as Internal,
)
from .functionals import (
    Potential as Potential,
)
from .functionals import (
    Radial as Radial,
)
from .functionals import (
    Scaled as Scaled,
)
from .functionals import (
    SlicedDistance as SlicedDistance,
)
from .functionals import (
    SlicedOTDD as SlicedOTDD,
)
from .functionals import (
    Sum as Sum,
)
from .functionals import (
    affine_norm as affine_norm,
)
from .functionals import (
    attraction as attraction,
)
from .functionals import (
    ball as ball,
)
from .functionals import (
    collapse as collapse,
)
from .functionals import (
    hinge as hinge,
)
from .functionals import (
    norm as norm,
)
from .functionals import (
    repulsion as repulsion,
)
from .functionals import (
    sliced_otdd as sliced_otdd,
)
from .functionals import (
    spreading as spreading,
)
from .ot import (
    ExactOT as ExactOT,
)
from .ot import (
    MiniBatch as MiniBatch,
)
from .ot import (
    NystromSinkhorn as NystromSinkhorn,
)
from .ot import (
    Relative as Relative,
)
from .ot import (
    Sinkhorn as Sinkhorn,
)
from .ot import (
    Solution as Solution,
)
from .transport.distance import (
    Distance as Distance,
)
from .transport.distance import (
    otdd as otdd,
)
from .transport.notes import (
    Note as Note,
)

__version__: str
__all__: list[str]
