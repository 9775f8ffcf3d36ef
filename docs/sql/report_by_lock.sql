-- The report by lock, from the four tables of a trace. For DuckDB, in the directory of trace.parquet.
-- Exact for exclusive locks that are not acquired recursively. An epoch ends where events were lost: nothing is paired
-- across it. A kind of lock without any release is recorded without holds: each of its acquisitions counts alone.
WITH events AS (
    SELECT e.*, e.file_row_number AS seq, l.kind,
           count(*) FILTER (event = 'lost') OVER so_far AS epoch,
           max(ts_ns) FILTER (event = 'lost') OVER so_far AS lost_ns
    FROM read_parquet('trace.parquet', file_row_number = true) AS e
    LEFT JOIN 'trace.locks.parquet' AS l USING (lock_id)
    WINDOW so_far AS (ORDER BY e.file_row_number)
),
measured AS (
    SELECT DISTINCT kind FROM events WHERE event = 'release'
),
-- The events of one task on one lock, each with the event before and after it.
steps AS (
    SELECT *,
           lag(event) OVER step AS before, lag(ts_ns) OVER step AS before_ns,
           lead(event) OVER step AS after, lead(ts_ns) OVER step AS after_ns
    FROM events
    WHERE event IN ('wait', 'acquire', 'abandon', 'release')
      AND kind NOT IN ('condvar', 'user_semaphore', 'barrier', 'thread')
    WINDOW step AS (PARTITION BY lock_id, task_id, epoch ORDER BY seq)
),
acquisitions AS (
    SELECT lock_id, task_id, epoch, stack_id, ts_ns AS start_ns,
           CASE WHEN after = 'release' THEN after_ns END AS end_ns,
           -- Unknown if the wait began before a loss.
           CASE WHEN before = 'wait' THEN coalesce(wait_ns, ts_ns - before_ns)
                WHEN wait_ns = 0 OR lost_ns IS NULL OR ts_ns - wait_ns > lost_ns THEN wait_ns
           END AS wait_ns,
           wait_ns IS NULL OR wait_ns > 0 OR coalesce(before = 'wait', false) AS contended,
           kind IN (SELECT kind FROM measured) AS is_measured
    FROM steps
    WHERE event = 'acquire'
),
-- Columns are credited at the release; a hold that is open at the end counts nowhere.
credited AS (
    SELECT *, end_ns - start_ns AS hold_ns FROM acquisitions WHERE end_ns >= start_ns OR NOT is_measured
),
-- Each wait is charged to the hold during which it began, if there was one.
charged AS (
    SELECT w.lock_id, count(*) AS waits
    FROM (SELECT * FROM steps WHERE event = 'wait' AND before IS DISTINCT FROM 'wait') AS w
    ASOF JOIN acquisitions AS a
      ON w.lock_id = a.lock_id AND w.epoch = a.epoch AND w.ts_ns >= a.start_ns
    WHERE w.ts_ns < a.end_ns AND w.task_id <> a.task_id
    GROUP BY w.lock_id
),
places AS (
    SELECT stack_id, coalesce([f FOR f IN frames IF f.file IS NOT NULL], frames)[1] AS frame
    FROM 'trace.stacks.parquet'
)
SELECT c.lock_id,
       any_value(l.name) AS lock_name,
       max(hold_ns) AS max_ns,
       max(c.wait_ns) AS wait_max_ns,
       sum(hold_ns) AS total_ns,
       sum(c.wait_ns) AS wait_total_ns,
       count(*) AS count,
       sum(hold_ns) // count(hold_ns) AS avg_ns,
       sum(c.wait_ns) // count(*) AS wait_avg_ns,
       CASE WHEN any_value(c.is_measured) THEN coalesce(any_value(charged.waits), 0) END AS cnt_hold,
       count(*) FILTER (c.contended) AS cnt_lock,
       count(DISTINCT t.tid) AS threads,
       arg_max(p.frame.symbol, coalesce(c.wait_ns, 0)) AS longest_wait_in
FROM credited AS c
JOIN 'trace.locks.parquet' AS l USING (lock_id)
LEFT JOIN 'trace.tasks.parquet' AS t USING (task_id)
LEFT JOIN places AS p USING (stack_id)
LEFT JOIN charged USING (lock_id)
GROUP BY c.lock_id
ORDER BY wait_total_ns DESC NULLS LAST, lock_id;
