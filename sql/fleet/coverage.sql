-- What was recorded: hosts, traces, time and events, and how much was lost.
WITH spans AS (
    SELECT host, from_ns, to_ns, to_ns - from_ns AS span_ns, events, lost, ranked, complete FROM traces
)
SELECT host, COUNT(*) AS traces, MIN(from_ns) AS first_ns, MAX(to_ns) AS last_ns,
       SUM(CAST(span_ns AS DECIMAL(38, 0))) AS recorded_ns,
       SUM(CAST(events AS DECIMAL(38, 0))) AS all_events,
       SUM(CAST(lost AS DECIMAL(38, 0))) AS lost_events,
       SUM(ranked) AS ranked_traces, SUM(complete) AS complete_traces
FROM spans
GROUP BY host
ORDER BY host
