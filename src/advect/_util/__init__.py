"""Tools that know no dataset: checks, files written whole, progress, memory, threads, jobs, ranks,
linear algebra.
"""
