"""A daily job: test each day's data against a reference, and name the class that changed."""

import torch

import advect as ad

digits = ad.datasets.load("digits")
generator = torch.Generator().manual_seed(0)
reference, rest = digits.split(0.4, generator=generator)
alarms = []
for day in range(6):
    window = rest.sample(200, generator=generator)
    if day >= 3:  # a new pen: all sevens become darker
        darker = torch.where((window.y == 7)[:, None], 1.5 * window.x, window.x)
        window = window.replace(x=darker)
    found = ad.drift(reference, window, level=0.05 / 6, max_samples=500)
    alarms.append(found.drifted)
    print(
        f"day {day}:",
        "drift in class " + str(found.changed_classes) if found.drifted else "no drift",
    )
print(f"{sum(alarms[:3])} false alarms, {sum(alarms[3:])} of 3 found")
