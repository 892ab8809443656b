"""The distributions of noisy numbers: laws, intervals, samples, and counts shown as large."""
