-- The FreeBSD columns of the report by acquisition site, from the four tables of a trace; written to be fast. For DuckDB, in the
-- directory of trace.parquet. Exact where locks are exclusive, acquired once at a time, and nothing was lost.
-- The release of an acquisition is the next release of its task. A wait began in the lock's last hold before it, unless that
-- had ended.
WITH points AS (
    SELECT stack_id, coalesce([f FOR f IN frames IF f.file IS NOT NULL], frames)[1] AS frame
    FROM 'trace.stacks.parquet'
),
steps AS (
    SELECT lock_id, ts_ns, event, stack_id, wait_ns,
           -- Among events of the same time a release comes first and a wait last, except for a wait that ended at once.
           CASE event WHEN 'release' THEN 0 WHEN 'acquire' THEN 2
                      ELSE CASE WHEN lead(ts_ns) OVER of_task = ts_ns THEN 1 ELSE 3 END END AS turn,
           wait_ns > 0 OR coalesce(lag(event) OVER of_task = 'wait', false) AS contended,
           lead(CASE WHEN event = 'release' THEN ts_ns END IGNORE NULLS) OVER of_task AS released_ns
    FROM read_parquet('trace.parquet', file_row_number = true)
    WHERE event IN ('wait', 'acquire', 'abandon', 'release')
      AND lock_id IN (SELECT lock_id FROM 'trace.locks.parquet' WHERE kind NOT IN ('condvar', 'user_semaphore', 'barrier', 'thread'))
    WINDOW of_task AS (PARTITION BY lock_id, task_id ORDER BY file_row_number)
),
seen AS (
    SELECT *,
           lag(CASE WHEN event = 'release' THEN -1
                    WHEN event = 'acquire' AND released_ns > ts_ns THEN stack_id
               END IGNORE NULLS) OVER (PARTITION BY lock_id ORDER BY ts_ns, turn) AS held_at
    FROM steps
),
sums AS (
    SELECT lock_id, stack_id,
           max(released_ns - ts_ns) AS max_ns,
           max(wait_ns) AS wait_max_ns,
           sum(released_ns - ts_ns) AS total_ns,
           sum(wait_ns) AS wait_total_ns,
           count(*) AS count,
           0 AS cnt_hold,
           count(*) FILTER (contended) AS cnt_lock
    FROM steps WHERE event = 'acquire' AND released_ns IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT lock_id, held_at, NULL, NULL, NULL, NULL, 0, count(*), 0
    FROM seen WHERE event = 'wait' AND held_at >= 0
    GROUP BY ALL
)
SELECT frame.file AS file, frame.line AS line, l.kind, l.name AS lock_name,
       max(max_ns) AS max_ns,
       max(wait_max_ns) AS wait_max_ns,
       sum(total_ns) AS total_ns,
       sum(wait_total_ns) AS wait_total_ns,
       sum(count) AS count,
       sum(total_ns) // sum(count) AS avg_ns,
       sum(wait_total_ns) // sum(count) AS wait_avg_ns,
       sum(cnt_hold) AS cnt_hold,
       sum(cnt_lock) AS cnt_lock
FROM sums JOIN points USING (stack_id) JOIN 'trace.locks.parquet' AS l USING (lock_id)
GROUP BY ALL
ORDER BY wait_total_ns DESC, file, line, lock_name;
