"""The steps that `job.py` takes: terms, numbers first, orders, expected errors, what is shown."""
