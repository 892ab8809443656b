{"world": "loose-rows", "seed": 2}
SELECT a0 FROM noisegate_0 WHERE  k0 <> 's' ORDER BY a0 DESC LIMIT 1