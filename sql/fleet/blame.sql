-- Who made whom wait: the table of `klock analyze blame --by pair`, over all hosts.
WITH counted AS (
    SELECT b.* FROM blame b JOIN traces t ON b.trace_id = t.trace_id WHERE t.ranked = 1
)
SELECT charged_to, holder_kind, holder_lock_name, holder_place, holder_function,
       waiter_kind, waiter_lock_name, waiter_place, waiter_function,
       COUNT(DISTINCT host) AS hosts,
       SUM(CAST(wait_caused_ns AS DECIMAL(38, 0))) AS wait_caused_ns,
       SUM(CAST(shares AS DECIMAL(38, 0))) AS shares,
       MAX(longest_ns) AS longest_ns
FROM counted
GROUP BY charged_to, holder_kind, holder_lock_name, holder_place, holder_function,
         waiter_kind, waiter_lock_name, waiter_place, waiter_function
ORDER BY wait_caused_ns DESC, charged_to, holder_place, waiter_place, holder_lock_name, waiter_lock_name
