-- One row for each value of each label, each host and each lock: what `klock analyze diff` compares groups of hosts by.
-- A host on which nothing was recorded of any lock has one row without a lock. `fleet.py --cohort NAME=VALUE` leaves one group.
WITH chosen AS (
    SELECT l.trace_id AS id, l.name AS label_name, l.value AS label_value
    FROM labels l CROSS JOIN parameters p
    WHERE p.cohort = '' OR CONCAT(l.name, '=', l.value) = p.cohort
), spans AS (
    SELECT trace_id, host, to_ns - from_ns AS span_ns FROM traces WHERE ranked = 1
), labelled AS (
    SELECT c.id, c.label_name, c.label_value, s.host AS machine, s.span_ns
    FROM chosen c JOIN spans s ON c.id = s.trace_id
), machines AS (
    SELECT label_name, label_value, machine, SUM(CAST(span_ns AS DECIMAL(38, 0))) AS machine_ns
    FROM labelled GROUP BY label_name, label_value, machine
), by_trace AS (
    SELECT trace_id, align,
           SUM(CAST(wait_total_ns AS DECIMAL(38, 0))) AS waits_ns,
           SUM(CAST(total_ns AS DECIMAL(38, 0))) AS holds_ns,
           SUM(CAST(wait_caused_ns AS DECIMAL(38, 0))) AS caused_ns,
           SUM(CAST(count AS DECIMAL(38, 0))) AS taken,
           SUM(CAST(cnt_lock AS DECIMAL(38, 0))) AS contended
    FROM facts GROUP BY trace_id, align
), by_machine AS (
    SELECT c.label_name AS of_name, c.label_value AS of_value, c.machine AS of_machine, b.align,
           SUM(b.waits_ns) AS waits_ns, SUM(b.holds_ns) AS holds_ns, SUM(b.caused_ns) AS caused_ns,
           SUM(b.taken) AS taken, SUM(b.contended) AS contended
    FROM by_trace b JOIN labelled c ON b.trace_id = c.id
    GROUP BY c.label_name, c.label_value, c.machine, b.align
)
SELECT m.label_name AS label, m.label_value AS cohort, m.machine AS host, b.align AS align,
       b.waits_ns AS wait_total_ns, b.holds_ns AS total_ns, b.caused_ns AS wait_caused_ns,
       b.taken AS acquisitions, b.contended AS cnt_lock, m.machine_ns AS recorded_ns
FROM machines m LEFT JOIN by_machine b
     ON m.label_name = b.of_name AND m.label_value = b.of_value AND m.machine = b.of_machine
ORDER BY label, cohort, host, align
