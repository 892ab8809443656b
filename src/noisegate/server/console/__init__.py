"""The pages: what analysts, stewards and auditors see in a browser.

Read `visits.py` first: who is there, what they may see, and what every page carries. `sessions.py`
keeps who signed in; each other file is a page or two. Pages are written by templates that escape
whatever they are given, need no network, and work without scripts, but for live prices.
"""

from noisegate.server.console.routes import console_routes as console_routes
