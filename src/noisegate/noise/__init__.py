"""The only room with chance: secure bits and exact, vectorised samplers.

Imports `exact` and `errors`. Read `table.py` first: how a draw is exact and fast at once.
"""

from noisegate.noise.bernoulli import bernoulli as bernoulli
from noisegate.noise.bernoulli import sample_rows as sample_rows
from noisegate.noise.binomial import binomial as binomial
from noisegate.noise.box import box_noise as box_noise
from noisegate.noise.gaussian import discrete_gaussian as discrete_gaussian
from noisegate.noise.geometric import discrete_laplace as discrete_laplace
from noisegate.noise.geometric import geometric as geometric
from noisegate.noise.geometric import geometric_tail as geometric_tail
from noisegate.noise.geometric import truncated_geometric as truncated_geometric
from noisegate.noise.rounded import rounded as rounded
from noisegate.noise.uniform import uniform_below as uniform_below
