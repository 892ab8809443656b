"""The steps that `job.py` takes: terms and numbers first, orders, what is shown."""
