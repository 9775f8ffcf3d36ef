-- The three hosts that waited longest for each lock.
WITH counted AS (
    SELECT f.* FROM facts f JOIN traces t ON f.trace_id = t.trace_id WHERE t.ranked = 1
), by_host AS (
    SELECT align, host, SUM(CAST(wait_total_ns AS DECIMAL(38, 0))) AS wait_total_ns,
           SUM(CAST(count AS DECIMAL(38, 0))) AS acquisitions
    FROM counted GROUP BY align, host
), known AS (
    SELECT * FROM by_host WHERE wait_total_ns IS NOT NULL
), ranked_hosts AS (
    SELECT align, host, wait_total_ns, acquisitions,
           ROW_NUMBER() OVER (PARTITION BY align ORDER BY wait_total_ns DESC, host) AS place_of_host
    FROM known
)
SELECT align, place_of_host, host, wait_total_ns, acquisitions
FROM ranked_hosts
WHERE place_of_host <= 3
ORDER BY align, place_of_host
