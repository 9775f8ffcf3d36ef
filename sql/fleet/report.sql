-- The table of `klock analyze report --by site`, over all hosts: which place of the code costs most.
-- A sum of nanoseconds over a fleet can exceed 64 bits, so sums are DECIMAL(38, 0).
-- Averages are truncated, as klock's are: (a - a % b) / b.
WITH counted AS (
    SELECT f.* FROM facts f JOIN traces t ON f.trace_id = t.trace_id WHERE t.ranked = 1
), sums AS (
    SELECT align, kind, lock_name, function, file, line, place,
           COUNT(DISTINCT host) AS hosts,
           MAX(max_ns) AS max_ns, MAX(wait_max_ns) AS wait_max_ns,
           SUM(CAST(total_ns AS DECIMAL(38, 0))) AS total_ns,
           SUM(CAST(wait_total_ns AS DECIMAL(38, 0))) AS wait_total_ns,
           SUM(CAST(wait_caused_ns AS DECIMAL(38, 0))) AS wait_caused_ns,
           SUM(CAST(count AS DECIMAL(38, 0))) AS acquisitions,
           SUM(CAST(hold_count AS DECIMAL(38, 0))) AS hold_count,
           SUM(CAST(cnt_hold AS DECIMAL(38, 0))) AS cnt_hold,
           SUM(CAST(cnt_lock AS DECIMAL(38, 0))) AS cnt_lock
    FROM counted
    GROUP BY align, kind, lock_name, function, file, line, place
)
SELECT align, kind, lock_name, function, file, line, place, hosts,
       max_ns, wait_max_ns, total_ns, wait_total_ns, wait_caused_ns, acquisitions, cnt_hold, cnt_lock,
       CASE WHEN hold_count > 0 THEN CAST((total_ns - total_ns % hold_count) / hold_count AS BIGINT) END AS avg_ns,
       CASE WHEN acquisitions > 0 THEN CAST((wait_total_ns - wait_total_ns % acquisitions) / acquisitions AS BIGINT) END AS wait_avg_ns
FROM sums
WHERE acquisitions > 0
ORDER BY wait_total_ns DESC, align, function, file, line, place
