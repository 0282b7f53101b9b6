"""
Did the data change, and in which class?
========================================

``ad.drift`` tests whether a window of data still has the distribution of a reference. Use it for a
model in production, and for data that arrives in batches.
"""

# %%
# Seven days of digits. From the fourth on, threes and fives are confused by whoever labels them,
# a little more each day.

import matplotlib.pyplot as plt
import torch

import advect as ad

digits = ad.datasets.load("digits")
draw = torch.Generator().manual_seed(0)
reference, rest = digits.split(0.4, generator=draw)
options = {"level": 0.05 / 7, "max_samples": 500}  # at most 5 % false alarms in seven days
days = []
for day in range(7):
    window = rest.sample(250, generator=draw)
    wrong = torch.rand(250, generator=draw) < max(0, 0.2 * (day - 2))
    other = torch.where(window.y == 3, 5, torch.where(window.y == 5, 3, window.y))
    window = window.replace(y=torch.where(wrong, other, window.y))
    days.append(ad.drift(reference, window, **options))
    print(f"day {day}: {'drift' if days[-1].drifted else 'nothing'} {', '.join(days[-1].found)}")

# %%
# What changed.

print(days[-1])
figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
for name in ("labels", "features"):
    axis.semilogy([found[name].p_value for found in days], "o-", label=f"test: {name}")
for day, found in enumerate(days):
    if found.drifted:
        axis.axvspan(day - 0.5, day + 0.5, color="C3", alpha=0.15, linewidth=0)
axis.axvline(2.5, color="0.5", linestyle="--", label="labels begin to be confused")
axis.set(title="p-values day by day; red days raise an alarm", xlabel="day", ylabel="p-value")
axis.legend()
