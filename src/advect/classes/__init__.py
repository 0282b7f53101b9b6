"""Classes of datasets: pseudo-labels, label spreading, matching and proportions (paper, section 5.3).

``pseudo_labels`` labels data without labels, ``fill_labels`` data with some, ``ClassMatching`` relates
the classes of two datasets, and ``class_shares`` estimates class proportions."""
