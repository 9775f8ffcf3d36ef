-- One row for each value of each label, each host and each lock: what a comparison of groups of hosts draws from.
WITH spans AS (
    SELECT trace_id AS id, to_ns - from_ns AS span_ns FROM traces WHERE ranked = 1
), labelled AS (
    SELECT l.trace_id AS id, l.name AS label, l.value AS cohort, s.span_ns
    FROM labels l JOIN spans s ON l.trace_id = s.id
), by_trace AS (
    SELECT trace_id, host, align,
           SUM(CAST(wait_total_ns AS DECIMAL(38, 0))) AS waits_ns,
           SUM(CAST(total_ns AS DECIMAL(38, 0))) AS holds_ns,
           SUM(CAST(count AS DECIMAL(38, 0))) AS taken
    FROM facts GROUP BY trace_id, host, align
)
SELECT c.label, c.cohort, b.host, b.align,
       SUM(b.waits_ns) AS wait_total_ns, SUM(b.holds_ns) AS total_ns, SUM(b.taken) AS acquisitions,
       SUM(CAST(c.span_ns AS DECIMAL(38, 0))) AS recorded_ns
FROM by_trace b JOIN labelled c ON b.trace_id = c.id
GROUP BY c.label, c.cohort, b.host, b.align
ORDER BY c.label, c.cohort, b.host, b.align
