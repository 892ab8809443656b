"""Linear models: regression and classifiers, by moments or a perturbed objective."""
