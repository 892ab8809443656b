"""What helps a steward: a first policy, what to look at again, a page to read, made-up rows.

Not trusted: it reads policies and public facts, never a private row. `sources/policy` is what
decides; nothing here does.
"""
