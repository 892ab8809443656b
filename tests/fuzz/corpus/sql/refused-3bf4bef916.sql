{"world": "loose", "seed": 0, "epsilon": 3000}
WITH a AS (SELECT 1), A AS (SELECT 2) SELECT COUNT2(*) FROM patients