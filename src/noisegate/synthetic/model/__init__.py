"""The graphical model of synthetic rows: junction tree, inference, sampling, error bars."""
