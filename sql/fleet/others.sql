-- The share of the waits, in millionths, that `--keys` put into the row (others), by host.
WITH counted AS (
    SELECT f.host, f.waiting_ns, CASE WHEN f.align = '(others)' THEN f.waiting_ns ELSE 0 END AS cut_ns
    FROM facts f JOIN traces t ON f.trace_id = t.trace_id WHERE t.ranked = 1
), by_host AS (
    SELECT host, SUM(CAST(waiting_ns AS DECIMAL(38, 0))) AS all_ns,
           SUM(CAST(cut_ns AS DECIMAL(38, 0))) AS others_ns
    FROM counted GROUP BY host
)
SELECT host, all_ns, others_ns,
       CASE WHEN all_ns > 0
            THEN CAST((others_ns * 1000000 - (others_ns * 1000000) % all_ns) / all_ns AS BIGINT) END AS others_ppm
FROM by_host
ORDER BY host
