"""Agents: programs that reason in words, and ask through the Model Context Protocol.

Read `tools.py` first: what an agent can do, and that nothing is asked unplanned. `words.py` says
prices, error bars and promises so that they are repeated correctly, `faces.py` is the protocol,
over HTTP and over the pipes of a process.
"""

from noisegate.server.agents.faces import AgentsApp as AgentsApp
from noisegate.server.agents.faces import serve_pipes as serve_pipes
