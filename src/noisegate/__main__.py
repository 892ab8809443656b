"""``python -m noisegate`` is the command line."""

from noisegate.cli import run

run()
