"""Tools that do not depend on datasets: checks, atomic files, locks, progress, memory, threads, results."""
