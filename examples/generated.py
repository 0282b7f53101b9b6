"""A generator that never makes one class: compare its samples with the data it was fitted to."""

import torch
from sklearn.mixture import GaussianMixture

import advect as ad

digits = ad.datasets.load("digits")
generator = torch.Generator().manual_seed(0)
train, fresh = digits.split(0.5, generator=generator)
samples, labels = [], []
for name in digits.classes:
    if name != 8:  # the generator has forgotten the eights
        own = train.of_class(name).x.numpy()
        model = GaussianMixture(5, covariance_type="diag", random_state=0).fit(own)
        samples.append(torch.as_tensor(model.sample(80)[0]))
        labels += [name] * 80
made = ad.LabeledDataset(torch.cat(samples), labels)
real, held_out = (ad.LabeledDataset(data.x, data.labels) for data in (train, fresh))
found = ad.compare(made, real, held_out)
print(found)
