"""The debiased transport problem between two labeled datasets, and the distance that it gives."""
