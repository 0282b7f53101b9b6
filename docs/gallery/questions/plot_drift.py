"""
Dataset shift detection
=======================

``ad.drift`` tests whether a window of data has the distribution of a reference, and in which class it
differs. Use it to monitor a model in production.
"""

# %%
# Seven days of digits. From day 3 on, the labels of threes and fives are confused, more on each day.

import matplotlib.pyplot as plt
import torch

import advect as ad

digits = ad.datasets.load("digits")
draw = torch.Generator().manual_seed(0)
reference, rest = digits.split(0.3, generator=draw)
options = {"level": 0.05 / 7, "max_samples": 300}  # at most 5 % false alarms in seven days
days = []
for day in range(7):
    window = rest.sample(200, generator=draw)
    wrong = torch.rand(200, generator=draw) < max(0, 0.2 * (day - 2))
    other = torch.where(window.y == 3, 5, torch.where(window.y == 5, 3, window.y))
    window = window.replace(y=torch.where(wrong, other, window.y))
    days.append(ad.drift(reference, window, **options))
    print(f"day {day}: {'drift' if days[-1].drifted else 'no drift'} {', '.join(days[-1].found)}")

# %%
# The tests of the last day, and the p-values over time.

print(days[-1])
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name in ("labels", "features"):
    axis.semilogy([found[name].p_value for found in days], "o-", label=f"test of the {name}")
axis.axvline(2.5, color="0.5", linestyle="--", label="labels are confused")
axis.axhline(options["level"], color="C3", linewidth=0.8, label="level")
axis.set(title="p-values of drift tests", xlabel="day", ylabel="p-value")
axis.legend()
