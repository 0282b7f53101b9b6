"""Tools that know no dataset: checks, atomic files, locks, progress, memory, threads, results."""
