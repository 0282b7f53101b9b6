"""Checks that a class of one's own keeps the promises of its family."""
