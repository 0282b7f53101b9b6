"""Labels with doubt in files: an array of probabilities, or a column for each class.

Our own tables call these columns ``probability[cat]``, ``probability[dog]``, …; others name them, or say what
their names begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import one_or_more
from advect.data.formats.table import Key, text_labels
from advect.errors import InputError

ARRAY = "probabilities"  # in archives of arrays
_OPEN, _CLOSE = "probability[", "]"

Asked = Key | bool | Sequence[Key | bool] | None


def keys_of(asked: Asked) -> list[Key] | None:
    """The columns, or arrays, that are asked for; none for False, and None where nothing is said."""
    if asked is None:
        return None
    keys: list[Any] = [asked] if type(asked) in (str, int, bool) else list(one_or_more(asked))
    return [] if keys in ([False], []) else keys


def set_aside(names: Sequence[str], places: Sequence[int], asked: Asked) -> list[str]:
    """Columns that are no features: those of the probabilities, and of our own tables also where they
    are not asked for.
    """
    own = keys_of(asked) == []
    return [name for at, name in enumerate(names) if at in places or (own and _is_own(name))]


def _is_own(name: str) -> bool:
    return name.startswith(_OPEN) and name.endswith(_CLOSE)


def probability_columns(
    path: object, names: Sequence[str], asked: Asked
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Where the probabilities of a table are, and the classes that they are of; nothing where there
    are none.

    Example:
        >>> probability_columns("pets.csv", ["kilos", "p_cat", "p_dog"], "p_")
        ((1, 2), ('cat', 'dog'))
        >>> probability_columns("pets.csv", ["kilos", "probability[0]", "probability[1]"], None)
        ((1, 2), (0, 1))
    """
    keys = keys_of(asked)
    if keys == []:
        return (), ()
    if keys is None:
        found = [at for at, name in enumerate(names) if _is_own(name)]
        texts = [names[at][len(_OPEN) : -len(_CLOSE)] for at in found]
    elif len(keys) == 1 and keys[0] not in names and type(keys[0]) is str:
        found = [at for at, name in enumerate(names) if name.startswith(keys[0])]
        texts = [
            names[at].removeprefix(keys[0]).removesuffix(_CLOSE if "[" in keys[0] else "")
            for at in found
        ]
        if len(found) < 2:
            raise _not_found(path, names, repr(keys[0]))
    else:
        found = [_place(path, names, key) for key in keys]
        texts = [names[at] for at in found]
    if not found:
        return (), ()
    least = 1 if keys is None else 2
    if (
        len(found) < least
        or len(set(found)) < len(found)
        or len(set(texts)) < len(texts)
        or "" in texts
    ):
        raise _not_found(path, names, ", ".join(repr(names[at]) for at in found))
    how = text_labels(texts)
    return tuple(found), tuple(how(text) for text in texts)


def _place(path: object, names: Sequence[str], key: Any) -> int:
    if type(key) is int and -len(names) <= key < len(names):
        return key % len(names)
    if key not in names:
        raise _not_found(path, names, repr(key))
    return names.index(key)


def _not_found(path: object, names: Sequence[str], got: str) -> InputError:
    listed = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
    return InputError(
        f"probabilities need two or more different columns of {path}, or what their names begin with",
        got,
        f"Its columns: {listed}.",
    )


def column_names(classes: Sequence[Any], taken: Sequence[str] = ()) -> list[str]:
    """Columns for the probabilities of classes, from which the classes come back."""
    texts = [str(name) for name in classes]
    kinds = {type(name) for name in classes}
    plain = kinds == {int} or (kinds == {str} and text_labels(texts) is str)
    if not plain or any(
        not text or text != text.strip() or not text.isprintable() for text in texts
    ):
        raise InputError(
            "classes with probabilities must be whole numbers or plain text in a table",
            ", ".join(map(repr, classes[:5])),
            "Rename them, or save as .npz.",
        )
    names = [f"{_OPEN}{text}{_CLOSE}" for text in texts]
    if both := set(names) & set(taken):
        raise InputError(
            "a column has a name that tables keep for probabilities", repr(both.pop()), "Rename it."
        )
    return names


def labels_of(
    where: object, probabilities: np.ndarray, labels: list[Any] | None, classes: Sequence[Any]
) -> list[Any]:
    """The labels of a file, which are among the classes that probabilities are of; the likeliest ones
    where it has none.
    """
    if labels is None:
        return likeliest(probabilities, classes)
    if unknown := set(labels) - {None, *classes}:
        raise InputError(
            f"labels must be among the classes with probabilities in {where}",
            f"{unknown.pop()!r} with classes {tuple(classes)}",
            "Name the columns after the classes, or pass label=False for the likeliest ones.",
        )
    return labels


def likeliest(probabilities: np.ndarray, classes: Sequence[Any]) -> list[Any]:
    """The name of each row's likeliest class."""
    return [classes[code] for code in probabilities.argmax(axis=1).tolist()]


def check_array(probabilities: Any, n: int, k: int, where: object) -> np.ndarray:
    """(n, k) numbers; what they sum to is for the dataset."""
    values = np.asarray(probabilities)
    if values.shape != (n, k) or values.dtype.kind not in "fiu":
        raise InputError(
            f"probabilities must be ({n}, {k}) numbers in {where}",
            f"{values.shape} {values.dtype}",
            "Store one for each sample and each class.",
        )
    return values.astype(np.float64)


def stored_names(
    path: Path, probabilities: np.ndarray, labels: list[Any] | None, classes: tuple[Any, ...] | None
) -> tuple[list[Any], tuple[Any, ...]]:
    """Labels and classes of an archive with probabilities: as it says, else the likeliest of 0 … k − 1."""
    k = probabilities.shape[1]
    names = tuple(range(k)) if classes is None else classes
    if len(names) != k:
        raise InputError(
            f"probabilities need a class for each of {k} columns in {path}",
            f"{len(names)} classes",
            "Store their names as classes.",
        )
    return labels_of(path, probabilities, labels, names), names
