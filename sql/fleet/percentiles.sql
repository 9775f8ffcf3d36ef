-- Percentiles of waits and holds by lock: the end of the bucket that has them, at most a 64th above the time.
-- They come from counts and not from the engine's own quantiles, which differ from engine to engine and from run to run.
WITH counted AS (
    SELECT b.* FROM buckets b JOIN traces t ON b.trace_id = t.trace_id WHERE t.ranked = 1
), by_bucket AS (
    SELECT align, of, le_ns, SUM(n) AS n FROM counted GROUP BY align, of, le_ns
), up_to AS (
    SELECT align, of, le_ns,
           SUM(n) OVER (PARTITION BY align, of ORDER BY le_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto,
           SUM(n) OVER (PARTITION BY align, of) AS total
    FROM by_bucket
)
SELECT align, of, MAX(total) AS n,
       MIN(CASE WHEN upto * 100 >= total * 50 THEN le_ns END) AS p50_ns,
       MIN(CASE WHEN upto * 100 >= total * 90 THEN le_ns END) AS p90_ns,
       MIN(CASE WHEN upto * 100 >= total * 99 THEN le_ns END) AS p99_ns,
       MIN(CASE WHEN upto * 1000 >= total * 999 THEN le_ns END) AS p999_ns
FROM up_to
GROUP BY align, of
ORDER BY align, of
