"""A device that is not there: tensors that say they are on another device than the processor, and
count what a real one would make the program wait for.

A program that runs on an accelerator hands it work and goes on; it waits where a number has to come
back (``float(t)``, ``t.tolist()``, ``t.cpu()``), where the size of a result depends on numbers
(``nonzero``, ``x[mask]``, ``unique``, ``bincount``), where a decomposition says whether it has
failed, and, in torch, also where numbers of the program are copied there (``torch.tensor([…],
device=…)``). Each such wait lets the device run dry. On a processor none of it can be seen, and
tensors that live on two devices are not told apart. Here they are: ``on_device(t)`` computes with
the processor's numbers, says that its device is ``meta``, refuses to be mixed with tensors of the
processor as CUDA would, and every wait is noted with the line of code that caused it.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten: Any = torch.ops.aten
PRETEND = torch.device("meta")
_HOST = torch.device("cpu")
_TENSOR: Any = Tensor  # with what torch's types leave out
# what waits for the device whatever it is asked, and how often: decompositions look at their
# error codes, the singular values also at whether they have converged
_ALWAYS = {
    "_local_scalar_dense": 1,
    "nonzero": 1,
    "masked_select": 1,
    "_unique2": 1,
    "unique_dim": 1,
    "unique_consecutive": 1,
    "bincount": 2,
    "equal": 1,
    "_linalg_eigh": 1,
    "linalg_eig": 1,
    "_linalg_svd": 2,
    "linalg_cholesky": 1,
    "cholesky": 1,
    "_linalg_solve": 1,
    "linalg_inv": 1,
    "linalg_lstsq": 1,
    "_coalesce": 1,
}
_MIXES = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}


def _mapped(part: Any, function: Any) -> Any:
    """A function of all tensors in tuples and lists; torch's own is ten times as slow."""
    if isinstance(part, Tensor):
        return function(part)
    if isinstance(part, (tuple, list)):
        return type(part)([_mapped(each, function) for each in part])
    return part


def _ours(part: Any) -> bool:
    """Whether it is on the pretended device."""
    return isinstance(part, OnDevice)


def _inside(tensor: Tensor) -> Tensor:
    return cast(OnDevice, tensor).elem if _ours(tensor) else tensor


class OnDevice(Tensor):
    """A tensor of the device that is not there."""

    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor) -> OnDevice:
        made = _TENSOR._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=PRETEND,
            requires_grad=False,
        )
        made.elem = elem
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnDevice({self.elem})"

    def tolist(self) -> Any:
        """The numbers, for one wait."""
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """An error, as for any device but the processor."""
        raise TypeError("can't convert a device tensor to numpy: copy it with .cpu() first")

    __torch_function__: Any = vars(torch._C)["_disabled_torch_function_impl"]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("tensors of the pretended device live inside Waits() alone")


class _Constructors(TorchFunctionMode):
    """Numbers of the program that are put on the device go through the processor's memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None:
            data, kwargs["device"] = args[0], None
            if torch.device(device) == PRETEND and not isinstance(data, Tensor):
                return func(*args, **kwargs).to(PRETEND)
            kwargs["device"] = device
        if func is Tensor.new_tensor and args[0].device == PRETEND:
            kwargs.setdefault("dtype", args[0].dtype)
            return torch.tensor(*args[1:], **{**kwargs, "device": _HOST}).to(PRETEND)
        if func is Tensor.tolist and _ours(args[0]):
            return args[0].detach().cpu().tolist()
        return func(*args, **kwargs)


class Waits(TorchDispatchMode):
    """Within it tensors may be on the device that is not there; waits for it are counted.

    To see what a functional, a cost or a kernel of your own would do on an accelerator: whether it
    mixes devices, and how often it waits.

    Attributes:
        count: the waits so far.
        places: how often each line of code has caused one, most first.

    Example:
        >>> import torch
        >>> from advect.testing import Waits
        >>> with Waits() as waits:
        ...     x = waits.on_device(torch.arange(4.0))
        ...     y = (x * x).sum() + 1              # nothing to wait for
        ...     before, number = waits.count, float(y)
        >>> number, waits.count - before
        (15.0, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self.count, self._places, self._constructors = 0, Counter[str](), _Constructors()

    def __enter__(self) -> Waits:
        self._constructors.__enter__()
        return super().__enter__()

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        self._constructors.__exit__(*why)

    @property
    def places(self) -> list[tuple[str, int]]:
        return self._places.most_common()

    def clear(self) -> None:
        """Begin to count anew."""
        self.count = 0
        self._places.clear()

    def on_device(self, part: Any) -> Any:
        """Tensors of the processor as tensors of the device, without a wait."""
        return _mapped(part, lambda t: t if _ours(t) else OnDevice(t.detach()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        parts: list[Tensor] = []
        _mapped((args, list(kwargs.values())), parts.append)
        ours = any(_ours(t) for t in parts)
        to = kwargs.get("device")
        onto = to is not None and torch.device(to) == PRETEND
        if not ours and not onto:
            return func(*args, **kwargs)
        if ours:
            self._check_mixed(name, parts)
        self._note(self._waits(name, args, kwargs, ours, onto))
        if onto:
            kwargs["device"] = _HOST
        inner = _mapped(args, _inside)
        found = func(*inner, **{name: _mapped(part, _inside) for name, part in kwargs.items()})
        leaves = onto or (ours and not (name == "_to_copy" and to is not None))
        if name.endswith("_") and isinstance(args[0], Tensor) and found is inner[0]:
            return args[0]
        if kwargs.get("out") is not None:
            return kwargs["out"]
        if not leaves or (name == "copy_" and not _ours(args[0])):
            return found
        return _mapped(found, OnDevice)

    def _check_mixed(self, name: str, parts: list[Tensor]) -> None:
        """As CUDA does: only single numbers, copies and indices may be on the processor."""
        apart = [t for t in parts if not _ours(t) and t.ndim > 0]
        if apart and name not in _MIXES:
            raise RuntimeError(
                "expected all tensors to be on the same device, but found at least two "
                f"devices, {PRETEND} and cpu, in {name}"
            )

    def _waits(self, name: str, args: Any, kwargs: Any, ours: bool, onto: bool) -> int:
        if name in _ALWAYS:
            return _ALWAYS[name]
        if name == "_to_copy":
            from_us = _ours(args[0])
            leaves = from_us and kwargs.get("device") is not None and not onto
            return int(leaves or (onto and not from_us))
        if name == "copy_":
            return int(_ours(args[0]) != _ours(args[1]))
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            places = [t for t in args[1] if t is not None]
            masks = sum(t.dtype in (torch.bool, torch.uint8) for t in places)
            copied = sum(not _ours(t) for t in places)
            one = name != "index" and args[2].ndim == 0 and masks == len(places)
            return (0 if one else masks) + copied
        if name == "repeat_interleave":
            return int(kwargs.get("output_size") is None)
        return 0

    def _note(self, waits: int) -> None:
        if not waits:
            return
        self.count += waits
        frame, shown = sys._getframe(2), []
        while frame is not None and len(shown) < 3:
            path = frame.f_code.co_filename
            if "advect" in path and not path.endswith("pretend.py"):
                shown.append(f"{'/'.join(path.rsplit('/', 2)[-2:])}:{frame.f_lineno}")
            frame = frame.f_back
        self._places[" < ".join(shown) or "elsewhere"] += waits
