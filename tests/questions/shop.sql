-- answered
SELECT COUNT(*) FROM customers;

-- answered
SELECT region, COUNT(*) AS customers FROM customers GROUP BY region ORDER BY customers DESC;

-- answered
select date_trunc('month', placed) as month, count(*) as orders, sum(total) as revenue
from orders group by 1 order by 1;

-- answered
SELECT CASE WHEN total < 25 THEN 'small' WHEN total < 100 THEN 'medium' ELSE 'large' END AS size,
       COUNT(*) AS n, AVG(total) AS mean
FROM orders GROUP BY size;

-- answered
SELECT status, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct
FROM orders GROUP BY status ORDER BY pct DESC;

-- answered
SELECT channel, SUM(total) / COUNT(*) AS average_order_value FROM orders GROUP BY channel;

-- answered
SELECT channel, status, COUNT(*) AS n FROM orders GROUP BY channel, status HAVING COUNT(*) > 400;

-- answered
SELECT p.category, SUM(l.quantity * l.price * (1 - l.discount)) AS revenue
FROM lines l JOIN products p ON p.product_id = l.product_id
GROUP BY p.category ORDER BY revenue DESC LIMIT 3;

-- answered
SELECT p.product_id, p.name, SUM(quantity) AS units
FROM lines JOIN products p USING (product_id)
GROUP BY p.product_id, p.name ORDER BY units DESC LIMIT 10;

-- answered
WITH monthly AS (
  SELECT DATE_TRUNC('month', placed) AS month, SUM(total) AS revenue FROM orders GROUP BY 1
)
SELECT month, revenue, revenue - LAG(revenue) OVER (ORDER BY month) AS change,
       100.0 * (revenue / LAG(revenue) OVER (ORDER BY month) - 1) AS pct
FROM monthly ORDER BY month;

-- answered
SELECT month, n, SUM(n) OVER (ORDER BY month) AS so_far
FROM (SELECT DATE_TRUNC('month', placed) AS month, COUNT(*) AS n
      FROM orders WHERE placed >= '2024-01-01' GROUP BY 1) ORDER BY month;

-- answered
SELECT COUNT(*) AS never_bought FROM customers c
WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id);

-- answered
SELECT COUNT(*) AS lapsed FROM customers c
WHERE EXISTS (SELECT * FROM orders o WHERE o.customer_id = c.customer_id AND YEAR(o.placed) = 2023)
  AND NOT EXISTS (SELECT * FROM orders o WHERE o.customer_id = c.customer_id AND YEAR(o.placed) = 2024);

-- answered
SELECT EXTRACT(YEAR FROM placed) AS y, EXTRACT(MONTH FROM placed) AS m,
       COUNT(DISTINCT customer_id) AS active_customers
FROM orders GROUP BY y, m ORDER BY y, m;

-- refused: bounds
SELECT AVG(n) AS orders_per_customer
FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id);

-- answered
SELECT AVG(LEAST(n, 40)) AS orders_per_customer, MEDIAN(LEAST(n, 40)) AS middle
FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id) AS per_customer;

-- answered
WITH counts AS (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id)
SELECT 100.0 * COUNT(*) FILTER (WHERE n >= 2) / COUNT(*) AS repeat_rate FROM counts;

-- answered
SELECT CASE WHEN n = 1 THEN '1' WHEN n = 2 THEN '2' WHEN n <= 5 THEN '3-5' ELSE '6+' END AS orders, COUNT(*) AS customers
FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY 1) t GROUP BY 1 ORDER BY 1;

-- answered
WITH firsts AS (SELECT customer_id, MIN(placed) AS first_order FROM orders GROUP BY customer_id)
SELECT DATE_TRUNC('quarter', first_order) AS cohort, COUNT(*) AS customers FROM firsts GROUP BY 1 ORDER BY 1;

-- answered
WITH firsts AS (SELECT customer_id, DATE_TRUNC('quarter', MIN(placed)) AS cohort FROM orders GROUP BY customer_id)
SELECT f.cohort, DATE_DIFF('quarter', f.cohort, DATE_TRUNC('quarter', o.placed)) AS later, COUNT(DISTINCT o.customer_id) AS customers
FROM orders o JOIN firsts f ON f.customer_id = o.customer_id
WHERE o.placed < '2024-07-01'
GROUP BY 1, 2 ORDER BY 1, 2;

-- answered, within 2 %
SELECT c.segment, MEDIAN(o.total) AS median, QUANTILE_CONT(o.total, 0.9) AS p90
FROM orders o JOIN customers c USING (customer_id) WHERE c.segment IS NOT NULL GROUP BY c.segment;

-- answered, within 2 %
SELECT QUANTILE_CONT(total, [0.25, 0.5, 0.75]) AS quartiles FROM orders;

-- answered
SELECT r.country, c.region, COUNT(*) AS n FROM customers c JOIN regions r ON c.region = r.region
GROUP BY ROLLUP (r.country, c.region);

-- answered
SELECT channel, COUNT(*) FILTER (WHERE status = 'returned') * 1.0 / COUNT(*) AS return_rate
FROM orders GROUP BY channel ORDER BY return_rate DESC;

-- answered
SELECT '2023' AS yr, COUNT(*) AS orders, SUM(total) AS revenue FROM orders WHERE placed < '2024-01-01'
UNION ALL
SELECT '2024', COUNT(*), SUM(total) FROM orders WHERE placed >= '2024-01-01';

-- answered
SELECT kind, COUNT(*) AS n FROM (
  SELECT 'joined' AS kind, joined AS day FROM customers
  UNION ALL
  SELECT 'ordered', placed::DATE FROM orders) events
WHERE day >= DATE '2023-06-01' GROUP BY kind;

-- answered
SELECT COUNT(*) AS spring FROM orders WHERE LOWER(coupon) LIKE 'spring%';

-- answered
SELECT coupon, COUNT(*) AS uses, COUNT(DISTINCT customer_id) AS customers
FROM orders WHERE coupon IS NOT NULL GROUP BY coupon ORDER BY uses DESC;

-- answered
SELECT city, COUNT(*) AS n FROM customers GROUP BY city ORDER BY n DESC, city LIMIT 5;

-- answered
SELECT DAYNAME(placed) AS weekday, COUNT(*) AS n FROM orders GROUP BY ALL;

-- answered
SELECT EXTRACT(hour FROM placed) AS hr, COUNT(*) AS n, SUM(total) AS revenue FROM orders GROUP BY hr ORDER BY hr;

-- answered
SELECT STRFTIME(placed, '%Y-%m') AS month, COUNT(*) AS n FROM orders GROUP BY month ORDER BY month;

-- answered
SELECT COUNT(*) AS recent, SUM(total) AS value FROM orders
WHERE placed >= DATE '2024-12-31' - INTERVAL 90 DAY;

-- answered
SELECT COUNT(*) FROM orders WHERE placed > CURRENT_DATE - INTERVAL 30 DAY;

-- refused: rows
SELECT * FROM orders WHERE total > 1500 LIMIT 20;

-- refused: rows one row per customer_id
SELECT customer_id, SUM(total) AS spent FROM orders GROUP BY customer_id ORDER BY spent DESC LIMIT 10;

-- refused: function
SELECT AVG(total) FROM (SELECT total FROM orders ORDER BY total DESC LIMIT 100);

-- answered
SELECT COUNT(*) AS above_average FROM orders WHERE total > (SELECT AVG(total) FROM orders);

-- answered
SELECT COUNT(*) AS unusually_large FROM orders o
WHERE o.total > 2 * (SELECT AVG(i.total) FROM orders i WHERE i.customer_id = o.customer_id);

-- answered
SELECT channel, COUNT(*) AS first_orders
FROM (SELECT channel, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY placed) AS k FROM orders) t
WHERE k = 1 GROUP BY channel;

-- answered
SELECT p.category, p.name, SUM(l.quantity) AS units
FROM lines l JOIN products p USING (product_id) GROUP BY 1, 2
QUALIFY ROW_NUMBER() OVER (PARTITION BY p.category ORDER BY SUM(l.quantity) DESC) <= 2
ORDER BY 1, 3 DESC;

-- answered
SELECT COUNT(DISTINCT o.customer_id) AS gamers FROM orders o JOIN lines l ON l.order_id = o.order_id
WHERE l.product_id IN (SELECT product_id FROM products WHERE category = 'games');

-- refused: bounds
SELECT AVG(n) AS lines_per_order FROM (SELECT order_id, COUNT(*) AS n FROM lines GROUP BY order_id);

-- answered
WITH baskets AS (SELECT order_id, SUM(quantity * price) AS value FROM lines GROUP BY order_id)
SELECT AVG(LEAST(value, 4000)) AS basket, COUNT(*) AS orders FROM baskets;

-- answered
SELECT c.segment, COUNT(o.order_id) AS orders, COUNT(DISTINCT c.customer_id) AS customers
FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id
GROUP BY c.segment ORDER BY c.segment NULLS LAST;

-- refused: units
SELECT decile, AVG(total) FROM (SELECT total, NTILE(10) OVER (ORDER BY total) AS decile FROM orders) GROUP BY decile;

-- answered, within 5 %
-- means SELECT QUANTILE_CONT(total, 0.01) AS lowest, QUANTILE_CONT(total, 0.99) AS highest FROM orders
SELECT MIN(total) AS lowest, MAX(total) AS highest FROM orders;

-- answered
SELECT STDDEV(total) AS spread, CORR(quantity, price) AS r, COVAR_POP(quantity, price) AS c
FROM lines JOIN orders USING (order_id);

-- refused: match
SELECT COUNT(*) AS never_sold FROM products p
WHERE NOT EXISTS (SELECT 1 FROM lines l WHERE l.product_id = p.product_id);

-- answered
PIVOT (SELECT channel, status, COUNT(*) AS n FROM orders GROUP BY ALL)
ON status IN ('paid', 'returned') USING SUM(n) GROUP BY channel;

-- answered
SELECT COUNT(DISTINCT o.customer_id) AS came_back FROM orders o
WHERE EXISTS (SELECT 1 FROM orders n WHERE n.customer_id = o.customer_id
              AND n.placed > o.placed AND n.placed <= o.placed + INTERVAL 30 DAY);

-- answered
SELECT p.category, COUNT(l.order_id) AS sold, COALESCE(SUM(l.quantity), 0) AS units
FROM products p LEFT JOIN lines l ON l.product_id = p.product_id AND l.discount = 0 GROUP BY p.category ORDER BY sold DESC;

-- answered
SELECT region, country, tier, COUNT(*) AS n FROM customers JOIN regions USING (region) GROUP BY region, country, tier ORDER BY n DESC;

-- answered
SELECT ROUND(total, -2) AS about, COUNT(*) AS n FROM orders GROUP BY about ORDER BY about;

-- answered
SELECT COUNT(*) AS churned FROM (SELECT customer_id FROM orders WHERE placed < '2024-01-01'
                                 EXCEPT SELECT customer_id FROM orders WHERE placed >= '2024-01-01');

-- answered
SELECT NULLIF(status, 'paid') AS problem, COUNT(*) AS n FROM orders GROUP BY 1 ORDER BY n DESC;

-- answered
SELECT 'all' AS scope, status, COUNT(*) AS n, SUM(total) AS revenue FROM orders GROUP BY ROLLUP (scope, status);

-- answered, within 3 %
SELECT QUANTILE_CONT(total, [0.25, 0.5, 0.75])[3] - QUANTILE_CONT(total, [0.25, 0.5, 0.75])[1] AS iqr FROM orders;

-- answered
SELECT REGR_SLOPE(price, quantity) AS slope, REGR_INTERCEPT(price, quantity) AS base, REGR_COUNT(price, quantity) AS n FROM lines;
