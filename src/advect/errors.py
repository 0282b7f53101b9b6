"""Errors and warnings of advect.

Every message states what is wrong, what was given and what to do.
"""


class AdvectError(Exception):
    """Base class of the errors of advect.

    Example:
        >>> import advect as ad
        >>> try:
        ...     ad.datasets.load("no-such-set")
        ... except AdvectError as error:
        ...     print(type(error).__name__)
        InputError
    """


class InputError(AdvectError, ValueError):
    """Data or options that cannot be used; also a ``ValueError``.

    Example:
        >>> import advect as ad
        >>> try:
        ...     ad.Sinkhorn(epsilon=-1.0)
        ... except ad.InputError as error:
        ...     print(error)
        epsilon must be a finite number above 0; got -1.0. Pass another value.
    """

    def __init__(self, what: str, got: object, remedy: str) -> None:
        super().__init__(f"{what}; got {got}. {remedy}")
        self.what, self.got, self.remedy = what, got, remedy

    # pickle needs the three arguments of the constructor (joblib workers raise these errors)
    def __reduce__(self):
        return type(self), (self.what, self.got, self.remedy)


class DamageWarning(UserWarning):
    """A file of a run is damaged and was read without its bad parts; the message names them.

    Example:
        >>> import warnings, advect as ad
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", DamageWarning)  # to stop there instead
    """


class ConvergenceWarning(UserWarning):
    """An iteration ended before its tolerance; the message gives the error reached and the remedy.

    Example:
        >>> import warnings, torch, advect as ad
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     cost = torch.rand(20, 20, generator=torch.Generator().manual_seed(0))
        ...     solution = ad.Sinkhorn(epsilon=1e-3, max_iter=3).solve(cost)
        >>> solution.converged, caught[0].category.__name__
        (False, 'ConvergenceWarning')
    """
