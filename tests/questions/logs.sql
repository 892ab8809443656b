-- answered
SELECT COUNT(*) AS hits, COUNT(DISTINCT s.user_id) AS users FROM views v JOIN sessions s ON s.session_id = v.session_id;

-- answered
-- means SELECT url, COUNT(*) AS hits FROM views JOIN sessions USING (session_id) GROUP BY url HAVING COUNT(DISTINCT user_id) > 1 ORDER BY hits DESC LIMIT 10
SELECT url, COUNT(*) AS hits FROM views GROUP BY url ORDER BY hits DESC LIMIT 10;

-- answered
SELECT url, COUNT(*) AS hits FROM views WHERE url IN ('/', '/pricing', '/signup', '/nowhere') GROUP BY url;

-- answered
SELECT status, COUNT(*) AS n, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM views) AS pct FROM views GROUP BY status ORDER BY status;

-- answered
SELECT ts::DATE AS day, COUNT(*) AS hits FROM views
WHERE ts >= '2024-04-01' AND ts < '2024-05-01' GROUP BY day ORDER BY day;

-- answered
SELECT date_trunc('week', started) AS week, COUNT(DISTINCT user_id) AS wau FROM sessions
WHERE started BETWEEN '2024-03-04' AND '2024-06-02 23:59:59' GROUP BY 1 ORDER BY 1;

-- answered
SELECT country, COUNT(*) AS users FROM users GROUP BY country ORDER BY users DESC;

-- answered
SELECT plan, AVG(seconds) AS avg_seconds, STDDEV_SAMP(seconds) AS sd
FROM sessions s JOIN users u ON u.user_id = s.user_id GROUP BY plan;

-- answered, within 2 %
SELECT device, QUANTILE_CONT(seconds, 0.5) AS p50, QUANTILE_CONT(seconds, 0.95) AS p95 FROM sessions GROUP BY device;

-- answered, within 2 %
SELECT PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY ms) AS p99 FROM views WHERE status = 200;

-- answered
SELECT COUNT(*) FILTER (WHERE status >= 400)::DOUBLE / COUNT(*) AS error_rate FROM views;

-- answered
SELECT browser, COUNT(*) AS sessions, AVG(seconds) AS mean FROM sessions GROUP BY browser HAVING COUNT(*) > 300 ORDER BY browser;

-- answered
SELECT CASE WHEN seconds < 60 THEN 'bounce' WHEN seconds < 600 THEN 'visit' WHEN seconds IS NULL THEN 'unknown' ELSE 'long' END AS bucket,
       COUNT(*) AS n FROM sessions GROUP BY 1;

-- answered
SELECT COUNT(DISTINCT CASE WHEN url = '/pricing' THEN user_id END) AS saw_pricing,
       COUNT(DISTINCT CASE WHEN url = '/signup' THEN user_id END) AS saw_signup,
       COUNT(DISTINCT CASE WHEN url = '/checkout' THEN user_id END) AS saw_checkout
FROM views JOIN sessions USING (session_id);

-- answered
SELECT COUNT(DISTINCT user_id) FILTER (WHERE url = '/checkout') * 1.0 / COUNT(DISTINCT user_id) FILTER (WHERE url = '/pricing') AS conversion
FROM views JOIN sessions USING (session_id);

-- answered
WITH steps AS (
  SELECT user_id, MAX(CASE WHEN url = '/pricing' THEN 1 ELSE 0 END) AS a,
         MAX(CASE WHEN url = '/checkout' THEN 1 ELSE 0 END) AS b,
         MAX(CASE WHEN url = '/thanks' THEN 1 ELSE 0 END) AS c
  FROM views JOIN sessions USING (session_id) GROUP BY user_id)
SELECT SUM(a) AS pricing, SUM(a * b) AS then_checkout, SUM(a * b * c) AS then_thanks FROM steps;

-- answered
WITH f AS (
  SELECT user_id, MIN(ts) FILTER (WHERE url = '/pricing') AS saw, MIN(ts) FILTER (WHERE url = '/checkout') AS paid
  FROM views JOIN sessions USING (session_id) GROUP BY user_id)
SELECT COUNT(*) AS in_order FROM f WHERE paid > saw;

-- answered
SELECT u.plan, COUNT(*) AS inactive FROM users u
WHERE u.user_id NOT IN (SELECT user_id FROM sessions WHERE started >= '2024-06-01' AND user_id IS NOT NULL)
GROUP BY u.plan;

-- answered
SELECT u.plan, COUNT(*) AS inactive FROM users u LEFT JOIN (SELECT DISTINCT user_id FROM sessions) s ON s.user_id = u.user_id
WHERE s.user_id IS NULL GROUP BY u.plan;

-- answered
SELECT DATE_TRUNC('month', u.signup) AS cohort, DATE_TRUNC('month', s.started) AS month, COUNT(DISTINCT u.user_id) AS users
FROM users u JOIN sessions s ON s.user_id = u.user_id
WHERE u.signup >= '2024-01-01' AND u.signup < '2024-04-01' AND s.started >= '2024-04-01' AND s.started < '2024-07-01'
GROUP BY cohort, month ORDER BY cohort, month;

-- answered
SELECT 100.0 * COUNT(*) FILTER (WHERE back) / COUNT(*) AS day30_retention FROM (
  SELECT u.user_id, MAX(DATE_DIFF('day', u.signup, s.started::DATE)) >= 30 AS back
  FROM users u LEFT JOIN sessions s ON s.user_id = u.user_id GROUP BY u.user_id);

-- answered
SELECT EXTRACT(hour FROM ts) AS hour, COUNT(*) AS hits, AVG(ms) AS latency FROM views GROUP BY ALL ORDER BY hour;

-- answered
SELECT EXTRACT(isodow FROM started) IN (6, 7) AS weekend, COUNT(*) AS n, AVG(seconds) AS mean FROM sessions WHERE started IS NOT NULL GROUP BY 1;

-- answered
SELECT SPLIT_PART(url, '/', 2) AS section, COUNT(*) AS hits FROM views GROUP BY section ORDER BY hits DESC;

-- answered
SELECT COUNT(*) AS shared FROM views WHERE REGEXP_MATCHES(url, '^/share/[0-9]+');

-- answered
SELECT REGEXP_EXTRACT(url, '^/([a-z]*)', 1) AS section, COUNT(*) AS n FROM views GROUP BY 1;

-- answered
SELECT COUNT(*) AS shared FROM views WHERE url LIKE '/share/%' OR CONTAINS(url, 'token=');

-- answered
SELECT CASE WHEN url LIKE '/docs%' THEN 'docs' WHEN url = '/' THEN 'home' ELSE 'other' END AS section, COUNT(*) AS n,
       COUNT(DISTINCT user_id) AS people
FROM sessions JOIN views USING (session_id) GROUP BY section;

-- answered
SELECT AVG(LEAST(n, 20)) AS pages_per_session FROM (SELECT session_id, COUNT(*) AS n FROM views GROUP BY session_id);

-- answered
SELECT COUNT(*) FILTER (WHERE n = 1) * 100.0 / COUNT(*) AS bounce_rate
FROM (SELECT session_id, COUNT(*) AS n FROM views GROUP BY session_id) x;

-- refused: bounds
SELECT AVG(LEAST(gap, 60)) AS days_between FROM (
  SELECT DATE_DIFF('day', LAG(started) OVER (PARTITION BY user_id ORDER BY started), started) AS gap FROM sessions) t
WHERE gap IS NOT NULL;

-- answered
SELECT device, COUNT(*) AS n FROM (
  SELECT device FROM sessions QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY started DESC) = 1) last GROUP BY device;

-- refused: bounds
SELECT SUM(bytes) AS traffic FROM views;

-- answered
SELECT SUM(LEAST(GREATEST(bytes, 0), 2000000)) / 1e9 AS gigabytes FROM views;

-- refused: rows one row per user_id
SELECT user_id, COUNT(*) AS sessions FROM sessions GROUP BY user_id HAVING COUNT(*) > 20;

-- refused: function
SELECT DISTINCT ON (user_id) user_id, started, device FROM sessions ORDER BY user_id, started;

-- refused: rows
SELECT url, ts FROM views WHERE status = 500 ORDER BY ts DESC LIMIT 50;

-- answered
SELECT referrer, COUNT(*) AS signups, SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC) AS cumulative
FROM users WHERE plan <> 'free' GROUP BY referrer ORDER BY signups DESC;

-- answered
WITH days AS (SELECT CAST(started AS DATE) AS d, COUNT(*) AS n FROM sessions
              WHERE started >= '2024-05-01' AND started < '2024-06-01' GROUP BY 1)
SELECT d, n, AVG(n) OVER (ORDER BY d ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS week_mean FROM days ORDER BY d;

-- answered
-- means SELECT device, plan, COUNT(*) AS n FROM sessions JOIN users USING (user_id) WHERE device <> 'kiosk' GROUP BY CUBE (device, plan)
SELECT device, plan, COUNT(*) AS n FROM sessions JOIN users USING (user_id) GROUP BY CUBE (device, plan);

-- answered
SELECT COUNT(*) AS power_users FROM (SELECT user_id FROM sessions GROUP BY user_id HAVING COUNT(*) >= 10) p;

-- answered
SELECT AVG(LEAST(total, 20000)) AS seconds_per_user FROM (SELECT user_id, SUM(seconds) AS total FROM sessions GROUP BY user_id);

-- answered
SELECT u.plan, SUM(v.ms) / NULLIF(COUNT(v.ms), 0) AS mean_ms
FROM views v JOIN sessions s ON v.session_id = s.session_id JOIN users u ON u.user_id = s.user_id
WHERE v.status <> 500 GROUP BY u.plan ORDER BY mean_ms;

-- answered
SELECT COUNT(*) AS both FROM (SELECT user_id FROM sessions WHERE device = 'mobile' INTERSECT SELECT user_id FROM sessions WHERE device = 'desktop');

-- answered
SELECT COUNT(*) AS cross_device FROM (SELECT user_id FROM sessions GROUP BY user_id HAVING COUNT(DISTINCT device) > 1);

-- answered
SELECT LENGTH(url) AS len, COUNT(*) AS n FROM views WHERE LENGTH(url) BETWEEN 1 AND 12 GROUP BY len ORDER BY len;

-- answered
SELECT COALESCE(referrer, 'direct') AS source, COUNT(*) AS n FROM users GROUP BY 1 ORDER BY 2 DESC;

-- answered
SELECT UPPER(LEFT(country, 1)) AS initial, COUNT(*) AS n FROM users WHERE country IN ('US', 'DE', 'IN', 'BR') GROUP BY initial;

-- answered
SELECT device, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM sessions GROUP BY device;

-- refused: unit
SELECT COUNT(*) AS pairs FROM sessions a JOIN sessions b ON a.browser = b.browser AND a.session_id < b.session_id;

-- answered
SELECT COUNT(*) AS reached FROM (SELECT user_id FROM sessions WHERE device = 'mobile' UNION SELECT user_id FROM users WHERE plan = 'pro');

-- answered
SELECT AVG(LEAST(GREATEST(EPOCH(v.ts - s.started), 0), 3600)) AS seconds_in FROM views v JOIN sessions s ON s.session_id = v.session_id;

-- answered
SELECT half, COUNT(*) AS sessions, AVG(seconds) AS mean FROM (
  SELECT seconds, NTILE(2) OVER (PARTITION BY user_id ORDER BY started, session_id) AS half FROM sessions) GROUP BY half;

-- answered
SELECT AVG(rolling) AS mean FROM (SELECT AVG(seconds) OVER (PARTITION BY user_id ORDER BY started, session_id
                                  ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS rolling FROM sessions);
