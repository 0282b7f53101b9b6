"""Five datasets on one map: which are near to each other, and how sure is that?"""

from pathlib import Path

import torch

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
draw = torch.Generator().manual_seed(0)
digits, mnist = ad.datasets.load("digits", n=300), ad.datasets.load("mnist", n=600, seed=1)
first, second = mnist.split(0.5, generator=draw)
dark = second.replace(x=1 - second.x)
noisy = second.replace(x=(second.x + 0.2 * torch.randn(second.x.shape, generator=draw)).clamp(0, 1))
sets = {
    "digits": digits,
    "mnist, one half": first,
    "the other half": second,
    "negative": dark,
    "noisy": noisy,
}

found = ad.pairwise(dict(zip(sets, ad.harmonize(*sets.values()), strict=True)))
print(found)  # ± is half a 95 % interval over other draws of as many samples of each class
name, distance = found.nearest("mnist, one half")[0]
low, high = found.interval("mnist, one half", name)
print(f"nearest to one half: {name} at {distance:.2f}, between {low:.2f} and {high:.2f}")
viz.save(viz.pairwise(found), out / "five_datasets.png")
