"""Reading and writing datasets: files, data frames, named datasets, references and recorded runs."""
