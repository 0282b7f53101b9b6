"""Remedies of the library in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advect.errors import InputError

_KIND = re.compile(r" \(or pass kind=…\)")  # which csv:file says on the command line
_QUERY = "Options of a file go behind its name: file.csv?key=value&key=value."
_OF_FILES = re.compile(
    r"""\b(?:(?P<name>categorical|channels|dtype|label|labels|weights|header|delimiter|encoding)="""
    r"""(?:'(?P<text>[^']*)'|(?P<word>True|False|…))|columns=\[…\]|(?P<size>size=)(?=\ \(one))"""
)
_WORDS = (
    (re.compile(r"""\bcolumns=["'](common|union)["']"""), r"--space.columns \1"),
    (re.compile(r"""\bscale=["']([\w-]+)["']"""), r"--space.scale \1"),
    (re.compile(r"\bproject=(\w+)"), r"--space.project \1"),
    (re.compile(r"\b([Rr]ename) with \.replace\(columns=…\)"), r"\1 them in the files"),
    (re.compile(r"\bad\.align\(source, target\)"), "--space.align auto"),
    (
        re.compile(r"""\bclasses=\{…: …\}, or leave it to by="geometry\""""),
        "in Python, or pass --space.align geometry",
    ),
    (
        re.compile(r"Pass ad\.LabeledDataset\(x, targets=y\), or \?target=column for a file"),
        "Say which column it is, file.csv?target=column",
    ),
    (
        re.compile(
            r"Give flattened images their shape back with \.replace\(sample_shape=\(H, W\)\) and "
            r"harmonize resizes them; or have"
        ),
        "Images need their shape: a folder, or an array (n, H, W) in an .npz file. Or have",
    ),
    (
        re.compile(r"\bor use an embedding in the cost\b"),
        "or an embedding in the cost, --cost.embedding",
    ),
    (re.compile(r"Make one with ad\.DatasetIndex\.create, or "), "Make one with "),
    (re.compile(r"\bn_steps=(\d+)"), r"--steps \1"),
    (re.compile(r"\bn_steps\b"), "--steps"),
    (re.compile(r"\boverwrite=True\b"), "--overwrite"),
    (
        re.compile(r"Record a flow with Recorder\(directory=…\) first"),
        "Pass the directory that advect flow -o … wrote",
    ),
    (
        re.compile(r"Pass what FeatureSpace.to_dict returned, or fit the space again"),
        "Take it from a copy, or run it again",
    ),
    (
        re.compile(r"or pass (encoder|decoder)= to FeatureSpace.from_dict"),
        r"or name it: --space.\1 for a map",
    ),
    (
        re.compile(r"Pass (encoder|decoder)= to FeatureSpace.from_dict"),
        r"Bring it back, or name it (--run-code for a report, --space.\1 for a map)",
    ),
    (
        re.compile(
            r"Pass decoder= where the space is fitted; or look at space.pictures\(…\), the "
        ),
        "Pass --space.decoder; the report shows the ",
    ),
    (re.compile(r"\bad\.GroundCost\(label=ad\.NoLabels\(\)\)"), "--cost none"),
    (re.compile(r" with data\.subset\(data\.labeled\)"), ""),
    (
        re.compile(
            r"Use JointFixedLabels or FeatureDriven, or the likeliest labels: data\.hard\(\)"
        ),
        "Use --dynamics jd-fl or fd, or the likeliest labels: ?probabilities=false",
    ),
    (re.compile(r"\bdata\.hard\(\)"), "?probabilities=false"),
    (
        re.compile(r"To label it anew, pass it without them: ad\.LabeledDataset\(pool\.samples\)"),
        "To label it anew, pass --relabel",
    ),
    (re.compile(r"; ad\.pseudo_labels finds clusters without any"), ""),
    (re.compile(r"\bat_least=([\d.]+)"), r"--confidence \1"),
    (
        re.compile(r"apply takes these as of the (\w+): pass side='\w+' for samples of the \w+"),
        r"Samples are taken as of the \1 here",
    ),
)
_WARNED = re.compile(r"label_weight (\([^)]*\)), or give label its full form, ad\.Bures\(\)")


def spelled(error: InputError, tokens: Sequence[str] = ()) -> str:
    """The message of an error, with options as they are typed; ``tokens`` are those of the command.

    Example:
        >>> print(spelled(InputError("the columns differ", "'a'", 'Pass columns="common".')))
        the columns differ; got 'a'. Pass --space.columns common.
        >>> print(spelled(InputError("features must be numbers", "'x'", "Pass categorical='onehot'.")))
        features must be numbers; got 'x'. Pass ?categorical=onehot. Options of a file go behind its name: ...
        >>> print(spelled(InputError("step_size must be above 0", "0", "Pass more."), ["--integrator.step-size", "0"]))
        --integrator.step-size must be above 0; got 0. Pass more.
    """
    got, remedy = str(error.got), error.remedy
    for python, typed in _WORDS:
        remedy = python.sub(typed, remedy)
        got = (
            python.sub(typed, got) if got.startswith(("n_steps=", "project=")) else got
        )  # the rest is the user's own
    remedy, options = _OF_FILES.subn(_typed, remedy)
    what = _KIND.sub("", _named(error.what, tokens))
    return f"{what}; got {got}. {remedy}" + (f" {_QUERY}" if options else "")


def _named(what: str, tokens: Sequence[str]) -> str:
    """A sentence that begins with the name of a parameter, with the option that was typed for it."""
    name, _, rest = what.partition(" ")
    typed = (token.partition("=")[0] for token in tokens if token.startswith("--"))
    ends = ("--" + name.replace("_", "-"), "." + name.replace("_", "-"))
    option = next((one for one in typed if one.endswith(ends)), None)
    return what if option is None or not name.isidentifier() else f"{option} {rest}"


def warned(text: str) -> str:
    """A warning of the library, with options as they are typed.

    Example:
        >>> warned("Raise label_weight (now 5), or give label its full form, ad.Bures().")
        'Raise --cost.label-weight (now 5), or take --cost.label bures.'
    """
    return _WARNED.sub(r"--cost.label-weight \1, or take --cost.label bures", text)


def _typed(option: re.Match[str]) -> str:
    from urllib.parse import quote

    if option["name"] is None:
        return "?size=" if option["size"] else "?columns=…"
    value = quote(option["text"], safe="") if option["text"] is not None else option["word"].lower()
    return f"?{option['name']}={value}"
