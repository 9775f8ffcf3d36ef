"""The FreeBSD columns of the report by acquisition site, computed by polars: the same as report_by_site.sql, and as exact.

    report_by_site.py DIRECTORY

Reads the trace in DIRECTORY. Writes CSV to standard output and its time in seconds to standard error.
"""

import os
import sys
import time

import polars as pl

os.chdir(sys.argv[1])
begin = time.perf_counter()

idle = ["condvar", "user_semaphore", "barrier", "thread"]
locks = (
    pl.scan_parquet("trace.locks.parquet")
    .filter(~pl.col("kind").is_in(idle))
    .select("lock_id", "kind", lock_name="name")
)
points = (
    pl.scan_parquet("trace.stacks.parquet")
    .explode("frames")
    .unnest("frames")
    .filter(pl.col("file").is_not_null())
    .group_by("stack_id", maintain_order=True)
    .agg(pl.col("file", "line").first())
)

# The release of an acquisition is the next release of its task. A wait began in the lock's last hold before it, unless that had ended.
# Among events of the same time a release comes first and a wait last, except for a wait that ended at once.
event, ts_ns = pl.col("event"), pl.col("ts_ns")
of_task = ["lock_id", "task_id"]
ends_at_once = ts_ns.shift(-1).over(of_task) == ts_ns
wait_turn = pl.when(ends_at_once).then(1).otherwise(3)
turn = pl.when(event == "release").then(0).when(event == "acquire").then(2).otherwise(wait_turn).cast(pl.Int8)
contended = (pl.col("wait_ns") > 0) | (event.shift(1).over(of_task) == "wait").fill_null(False)
released_ns = pl.when(event == "release").then(ts_ns).backward_fill().over(of_task)
is_held = (event == "acquire") & (pl.col("released_ns") > ts_ns)
held_at = pl.when(event == "release").then(-1).when(is_held).then("stack_id").forward_fill().over("lock_id")
is_hold = event == "acquire"
seen = (
    pl.scan_parquet("trace.parquet")
    .select("lock_id", "task_id", "event", "ts_ns", "stack_id", "wait_ns")
    .filter(event.is_in(["wait", "acquire", "abandon", "release"]))
    .join(locks, on="lock_id", how="semi", maintain_order="left")
    .with_columns(turn=turn, contended=contended, released_ns=released_ns)
    .sort("ts_ns", "turn", maintain_order=True)
    .with_columns(held_at=held_at)
    .with_columns(stack_id=pl.when(is_hold).then("stack_id").otherwise("held_at"))
    .filter((event == "wait") & (pl.col("held_at") >= 0) | is_hold & pl.col("released_ns").is_not_null())
)
hold = (pl.col("released_ns") - ts_ns).filter(is_hold)
wait = pl.col("wait_ns").filter(is_hold)
maxima, sums = ["max_ns", "wait_max_ns"], ["total_ns", "wait_total_ns", "count", "cnt_hold", "cnt_lock"]
rows = (
    seen.group_by("lock_id", "stack_id")
    .agg(
        max_ns=hold.max(),
        wait_max_ns=wait.max(),
        total_ns=hold.sum(),
        wait_total_ns=wait.sum(),
        count=is_hold.sum(),
        cnt_hold=(~is_hold).sum(),
        cnt_lock=pl.col("contended").filter(is_hold).sum(),
    )
    .join(points, on="stack_id")
    .join(locks, on="lock_id")
    .group_by("file", "line", "kind", "lock_name")
    .agg(pl.col(maxima).max(), pl.col(sums).sum())
    .with_columns(
        avg_ns=pl.col("total_ns") // pl.col("count"),
        wait_avg_ns=pl.col("wait_total_ns") // pl.col("count"),
    )
    .select(
        *["file", "line", "kind", "lock_name", "max_ns", "wait_max_ns", "total_ns", "wait_total_ns", "count"],
        *["avg_ns", "wait_avg_ns", "cnt_hold", "cnt_lock"],
    )
    .sort("wait_total_ns", "file", "line", "lock_name", descending=[True, False, False, False])
    .collect(engine="streaming")
)

print(time.perf_counter() - begin, file=sys.stderr)
print(rows.write_csv(), end="")
