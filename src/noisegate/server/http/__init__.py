"""The service over HTTP: orders in, progress and results out, described by OpenAPI.

Read `table.py` first: all calls, each with what it takes and gives, and the OpenAPI document made
of them. `asked.py` reads a request, `answering.py` does what a call says, `app.py` guards them. The
Python client is the room `client`.
"""

from noisegate.server.http.app import http_app

__all__ = ["http_app"]
