"""Datasets in and out: files, data frames, named sets, references and recorded runs."""
