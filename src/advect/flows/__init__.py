"""The flow: a loop over a field, an integrator and step control; what may move, what is recorded,
what comes out.
"""
