-- Waiting and holding in each period, over all hosts and locks.
WITH counted AS (
    SELECT f.* FROM facts f JOIN traces t ON f.trace_id = t.trace_id WHERE t.ranked = 1
)
SELECT period_ns, COUNT(DISTINCT host) AS hosts,
       SUM(CAST(waiting_ns AS DECIMAL(38, 0))) AS waiting_ns,
       SUM(CAST(holding_ns AS DECIMAL(38, 0))) AS holding_ns,
       SUM(CAST(count AS DECIMAL(38, 0))) AS acquisitions
FROM counted
GROUP BY period_ns
ORDER BY period_ns
