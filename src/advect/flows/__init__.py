"""Flows: field, integrators, step control, the loop, callbacks and results."""
