-- Locks that were first seen at or after `since_ns`, which is a column of the view `parameters`.
WITH first_seen AS (
    SELECT align, MIN(period_ns) AS first_ns, COUNT(DISTINCT host) AS hosts,
           SUM(CAST(wait_total_ns AS DECIMAL(38, 0))) AS wait_total_ns
    FROM facts GROUP BY align
)
SELECT f.align, f.first_ns, f.hosts, f.wait_total_ns
FROM first_seen f CROSS JOIN parameters p
WHERE f.first_ns >= p.since_ns
ORDER BY f.align
