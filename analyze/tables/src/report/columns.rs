//! The columns of the report, each declared once.
//!
//! A declaration gives a column's word, its field, its type, its unit, whether it adds up over rows, and the expression that
//! makes it from the sums of a row (see `HoldSums`). From it come the command line's words and help, sorting,
//! the typed [`Columns`], and every output format.

use polars::{
    frame::DataFrame,
    prelude::{Expr, Int64Chunked, IntoColumn as _, IntoLazy as _, LazyFrame, PolarsResult, col, lit, when},
};
use serde::Serialize;

use crate::frame::{ints, masked, values};
use output::{Kind, choices};

/// Makes [`Column`], [`Columns`] and [`Extra`] from the declarations below.
macro_rules! columns {
    (
        always { $(
            $(#[doc = $doc:literal])+
            $column:ident $(($default:ident))? $([$serde:ident])? $word:literal $field:ident: $type:ty, $unit:ident, $adds_up:literal, $make:expr;
        )+ }
        ranked { $(
            $(#[doc = $ranked_doc:literal])+
            $ranked:ident $ranked_word:literal $ranked_unit:ident;
        )+ }
        $(
            $(#[doc = $group_doc:literal])+
            on_request $group:ident $group_field:ident { $(
                $(#[doc = $extra_doc:literal])+
                $extra:ident $extra_word:literal $extra_field:ident, $extra_unit:ident, $extra_adds_up:literal;
            )+ }
        )+
    ) => {
        choices! {
            /// A column of the report.
            Column, "column" {
                $($(#[doc = $doc])+ $(#[$default])? $column = $word,)+
                $($(#[doc = $ranked_doc])+ $ranked = $ranked_word,)+
                $($($(#[doc = $extra_doc])+ $extra = $extra_word,)+)+
                /// The name of the row, ascending.
                Name = "name",
            }
        }

        impl Column {
            /// Returns the sentence that describes the column.
            pub const fn doc(self) -> &'static str {
                match self {
                    $(Self::$column => concat!($($doc),+),)+
                    $(Self::$ranked => concat!($($ranked_doc),+),)+
                    $($(Self::$extra => concat!($($extra_doc),+),)+)+
                    Self::Name => " The name of the row.",
                }
            }

            /// Returns the kind of its values.
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$column => Kind::$unit,)+
                    $(Self::$ranked => Kind::$ranked_unit,)+
                    $($(Self::$extra => Kind::$extra_unit,)+)+
                    Self::Name => Kind::Text,
                }
            }

            /// Returns whether the values of all rows add up to something that one row can be a part of.
            pub const fn adds_up(self) -> bool {
                match self {
                    $(Self::$column => $adds_up,)+
                    $($(Self::$extra => $extra_adds_up,)+)+
                    _ => false,
                }
            }

            /// Returns whether it relates a row to all rows by another column, so that rows cannot be sorted by it.
            pub const fn is_part(self) -> bool {
                matches!(self, $(Self::$ranked)|+)
            }

            /// Returns the group of columns that are computed together, on request only, because they cost a pass over the trace.
            pub const fn group(self) -> Option<Group> {
                match self {
                    $($(Self::$extra)|+ => Some(Group::$group),)+
                    _ => None,
                }
            }
        }

        /// Columns that are computed together, on request only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Group {
            $($(#[doc = $group_doc])+ $group,)+
        }

        /// The columns of LOCK_PROFILING(9), and those of waits caused to others. Times are in nanoseconds; `None` means
        /// not measured, never 0.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Columns {
            $($(#[doc = $doc])+ $(#[serde($serde)])? pub $field: $type,)+
            $(
                $(#[doc = $group_doc])+
                #[serde(flatten)]
                pub $group_field: Option<$group>,
            )+
        }

        $(
            $(#[doc = $group_doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
            pub struct $group {
                $($(#[doc = $extra_doc])+ pub $extra_field: Option<i64>,)+
            }

            impl $group {
                /// Returns a line per row with these columns.
                pub(super) fn frame(rows: impl Iterator<Item = (i64, Self)>) -> PolarsResult<LazyFrame> {
                    let (rows, of): (Vec<i64>, Vec<Self>) = rows.unzip();
                    let column = |name: &str, get: fn(&Self) -> Option<i64>| {
                        of.iter().map(get).collect::<Int64Chunked>().with_name(name.into()).into_column()
                    };
                    let columns = vec![$(column($extra_word, |of| of.$extra_field)),+];
                    let mut frame = DataFrame::new(of.len(), columns)?;
                    frame.with_column(ints("row", rows))?;
                    Ok(frame.lazy())
                }

                /// Returns the columns of every line of a frame, if it has them.
                fn of_frame(frame: &DataFrame) -> PolarsResult<Option<Vec<Self>>> {
                    if [$($extra_word),+].iter().any(|word| frame.column(word).is_err()) {
                        return Ok(None);
                    }
                    $(let $extra_field = values(frame, $extra_word)?;)+
                    Ok(Some((0..frame.height()).map(|at| Self { $($extra_field: $extra_field[at],)+ }).collect()))
                }
            }
        )+

        impl Columns {
            /// Returns the value of a column; `None` if it was not measured, for the name, and for what depends on other rows.
            pub fn get(&self, column: Column) -> Option<i64> {
                match column {
                    $(Column::$column => self.$field.into(),)+
                    $($(Column::$extra => self.$group_field.as_ref().and_then(|group| group.$extra_field),)+)+
                    Column::Pct | Column::CumPct | Column::Name => None,
                }
            }
        }

        /// Returns the expressions of all columns that come from the sums of a row.
        pub(super) fn expressions() -> Vec<Expr> {
            vec![$($make.alias($word)),+]
        }

        /// Returns the typed columns of every line of a frame, with those on request that the frame has.
        pub(super) fn of_frame(frame: &DataFrame) -> PolarsResult<Vec<Columns>> {
            $(let $field = values(frame, $word)?;)+
            $(let $group_field = $group::of_frame(frame)?;)+
            let columns = |at: usize| Columns {
                $($field: Value::of($field[at]),)+
                $($group_field: $group_field.as_ref().map(|group| group[at]),)+
            };
            Ok((0..frame.height()).map(columns).collect())
        }
    };
}

/// A field of [`Columns`]; counts of acquisitions are always measured.
trait Value {
    fn of(value: Option<i64>) -> Self;
}

impl Value for i64 {
    fn of(value: Option<i64>) -> Self {
        value.unwrap_or(0)
    }
}

impl Value for Option<i64> {
    fn of(value: Self) -> Self {
        value
    }
}

columns! {
    always {
        /// The longest hold.
        Max "max" max_ns: Option<i64>, Duration, false, measured(col("max_ns"));
        /// The longest wait that ended with the lock.
        WaitMax "wait_max" wait_max_ns: Option<i64>, Duration, false, waited(col("wait_max_ns"));
        /// The sum of all holds.
        Total "total" total_ns: Option<i64>, Duration, true, measured(col("total_ns"));
        /// The sum of all waits that ended with the lock: its cost to its users.
        WaitTotal(default) "wait_total" wait_total_ns: Option<i64>, Duration, true, waited(col("wait_total_ns"));
        /// Acquisitions.
        Count "count" count: i64, Count, true, col("count");
        /// `total` divided by the acquisitions whose hold was measured.
        Avg "avg" avg_ns: Option<i64>, Duration, false, measured(divide("total_ns", "measured"));
        /// `wait_total` divided by all acquisitions, not only those that waited.
        WaitAvg "wait_avg" wait_avg_ns: Option<i64>, Duration, false, waited(divide("wait_total_ns", "count"));
        /// Waits of other tasks that began while the lock was held, abandoned waits included.
        CntHold "cnt_hold" cnt_hold: Option<i64>, Count, true, measured(col("cnt_hold"));
        /// Contended acquisitions.
        CntLock "cnt_lock" cnt_lock: i64, Count, true, col("cnt_lock");
        /// Time that other tasks waited while this was the oldest open hold, abandoned waits included.
        WaitCaused "wait_caused" wait_caused_ns: Option<i64>, Duration, true, measured(col("wait_caused_ns"));
        /// Holds in which another task began to wait.
        HoldsContended "holds_contended" holds_contended: Option<i64>, Count, true, measured(col("holds_contended"));
        /// The part of `wait_total` in which no other task held the lock; the rest is in `wait_caused` of some row.
        Gap "gap" gap_ns: Option<i64>, Duration, true, masked(col("gap_ns"), col("gaps_known").gt(lit(0)).or(is_empty()));
        /// `cnt_lock` divided by `count`.
        Contention[skip] "contention" contention_ppm: Option<i64>, Ppm, false, masked(col("cnt_lock") * lit(1_000_000) / col("count"), col("count").gt(lit(0)));
        /// Holds before which another task had the lock.
        OwnerChanges "owner_changes" owner_changes: Option<i64>, Count, true, measured(col("owner_changes"));
        /// The most tasks that waited at the same time for one of its holds.
        MaxWaiters "max_waiters" max_waiters: Option<i64>, Count, false, measured(col("max_waiters"));
        /// Acquisitions, and attempts that did not lead to one: `abandoned`, `try_failed` and `open_waits`.
        Attempts "attempts" attempts: i64, Count, true, col("count") + col("abandoned") + col("try_failed") + col("open_waits");
        /// Waits that ended without the lock: a timeout, a signal.
        Abandoned "abandoned" abandoned: i64, Count, true, col("abandoned");
        /// The sum of these waits.
        AbandonedWait "abandoned_wait" abandoned_wait_ns: i64, Duration, true, col("abandoned_wait_ns");
        /// Attempts that found the lock taken and did not wait: trylock.
        TryFailed "try_failed" try_failed: i64, Count, true, col("try_failed");
        /// Holds that were open at the end, in no other column.
        OpenHolds "open_holds" open_holds: i64, Count, true, col("open_holds");
        /// The sum of these holds until the end: they are at least as long.
        OpenHold "open_hold" open_hold_ns: i64, Duration, true, col("open_hold_ns");
        /// Waits that were open at the end, in no other column.
        OpenWaits "open_waits" open_waits: i64, Count, true, col("open_waits");
        /// The sum of these waits until the end: they are at least as long.
        OpenWait "open_wait" open_wait_ns: i64, Duration, true, col("open_wait_ns");
    }
    ranked {
        /// The row's share of the sort column (-k), of all rows, including those that -n leaves out.
        Pct "pct" Ppm;
        /// The share of this row and all rows before it.
        CumPct "cum_pct" Ppm;
    }
    /// Percentiles, and the parts of waits. Holds count if both of their ends were seen, waits if they ended in a hold and their begin was
    /// seen. A percentile is the smallest time that this share of them does not exceed.
    on_request Extra extra {
        /// The shortest hold.
        Min "min" min_ns, Duration, false;
        /// The median of the holds.
        P50 "p50" p50_ns, Duration, false;
        /// 90th percentile of the holds.
        P90 "p90" p90_ns, Duration, false;
        /// 99th percentile of the holds.
        P99 "p99" p99_ns, Duration, false;
        /// 99.9th percentile of the holds.
        P999 "p999" p999_ns, Duration, false;
        /// The shortest wait.
        WaitMin "wait_min" wait_min_ns, Duration, false;
        /// The median of the waits, over the acquisitions that waited.
        WaitP50 "wait_p50" wait_p50_ns, Duration, false;
        /// 90th percentile of the waits.
        WaitP90 "wait_p90" wait_p90_ns, Duration, false;
        /// 99th percentile of the waits.
        WaitP99 "wait_p99" wait_p99_ns, Duration, false;
        /// 99.9th percentile of the waits.
        WaitP999 "wait_p999" wait_p999_ns, Duration, false;
        /// The part of the waits spent on a CPU, where the source records it.
        Spin "spin" spin_ns, Duration, true;
        /// The part of the waits spent asleep.
        Blocked "blocked" blocked_ns, Duration, true;
        /// The part of the waits spent ready to run, without a CPU.
        Runq "runq" runq_ns, Duration, true;
        /// Threads that acquired the lock.
        Threads "threads" threads, Count, false;
    }
    /// The states of the holder while others waited. They add up to `wait_caused`.
    on_request HolderStates states {
        /// The part of `wait_caused` in which the holder waited for another lock.
        CausedLock "caused_lock" caused_lock_ns, Duration, true;
        /// The part in which it waited for a condition variable, semaphore or barrier.
        CausedIdle "caused_idle" caused_idle_ns, Duration, true;
        /// The part in which it was preempted: runnable, but another task had its CPU.
        CausedPreempted "caused_preempted" caused_preempted_ns, Duration, true;
        /// The part in which it slept uninterruptibly: mostly disk I/O and page faults.
        CausedUninterruptible "caused_uninterruptible" caused_uninterruptible_ns, Duration, true;
        /// The part in which a signal or a debugger had stopped it.
        CausedStopped "caused_stopped" caused_stopped_ns, Duration, true;
        /// The part in which it slept in any other way.
        CausedAsleep "caused_asleep" caused_asleep_ns, Duration, true;
        /// The part in which it was woken and waited for a CPU.
        CausedReady "caused_ready" caused_ready_ns, Duration, true;
        /// The part in which it ran.
        CausedRunning "caused_running" caused_running_ns, Duration, true;
        /// The part in which its state is unknown: off-CPU time was not recorded, or it has no later event.
        CausedUnknown "caused_unknown" caused_unknown_ns, Duration, true;
    }
    /// Queues and fairness, for rows that hold whole locks.
    on_request Fairness fairness {
        /// Queues that were not empty for at least 8 acquisitions although the lock was free half of the time.
        Convoys "convoys" convoys, Count, true;
        /// The time of all waits in convoys.
        ConvoyWait "convoy_wait" convoy_wait_ns, Duration, true;
        /// The time of all waits in queues of as many acquisitions in which the lock was mostly held.
        SaturatedWait "saturated_wait" saturated_wait_ns, Duration, true;
        /// Acquisitions that a waiting task had to let pass, although it came first; once for each such task.
        Overtakes "overtakes" overtakes, Count, true;
        /// The most acquisitions that overtook one wait.
        OvertakenMax "overtaken_max" overtaken_max, Count, false;
        /// Jain's index of the tasks' hold times: 100 % if all are equal, 100 % divided by their number if one has all.
        Jain "jain" jain_ppm, Ppm, false;
        /// The share of the hold time of the task that held longest.
        Hog "hog" hog_ppm, Ppm, false;
        /// Acquisitions in a row by one task, on average: count divided by owner_changes + 1.
        RunLength "run_length" run_length, Count, false;
    }
    /// The lifetime of tasks, the calls that woke others and those that failed, and idle waits, for rows of tasks.
    on_request Calls calls {
        /// Threads that have events.
        Tasks "tasks" tasks, Count, true;
        /// Locks that they acquired or waited for.
        Locks "locks" locks, Count, false;
        /// Waits for locks, however they ended.
        Waits "waits" waits, Count, true;
        /// The sum of these waits; a wait that is open at the end counts until then.
        Waited "waited" waited_ns, Duration, true;
        /// `waited` divided by `lived`.
        WaitShare "wait_share" wait_share_ppm, Ppm, false;
        /// The part of `waited` spent asleep, as far as it is known.
        Asleep "asleep" asleep_ns, Duration, true;
        /// `asleep` divided by `lived`.
        AsleepShare "asleep_share" asleep_share_ppm, Ppm, false;
        /// The lifetime of the threads within the selected time: running, waiting and asleep.
        Lived "lived" lived_ns, Duration, true;
        /// Abandoned waits, attempts that found a lock taken, and failed wake-ups.
        Errors "errors" errors, Count, true;
        /// Calls that wake others.
        Wakes "wakes" wakes, Count, true;
        /// Threads woken by these calls, as far as it is known.
        Woken "woken" woken, Count, true;
        /// Idle waits: on condition variables, semaphores and barriers, for the end of threads, in schedulers.
        IdleWaits "idle_waits" idle_waits, Count, true;
        /// The sum of these waits.
        IdleTime "idle_time" idle_time_ns, Duration, true;
    }
}

/// The columns that text shows by default of processes.
pub(super) const PROCESS_TEXT: [Column; 13] = [
    Column::Tasks,
    Column::Locks,
    Column::Count,
    Column::WaitTotal,
    Column::WaitShare,
    Column::Asleep,
    Column::AsleepShare,
    Column::Total,
    Column::Errors,
    Column::Wakes,
    Column::Woken,
    Column::IdleWaits,
    Column::IdleTime,
];

/// The columns that text shows by default, in its order.
pub(super) const TEXT: [Column; 10] = [
    Column::Max,
    Column::WaitMax,
    Column::Total,
    Column::WaitTotal,
    Column::WaitCaused,
    Column::Count,
    Column::Avg,
    Column::WaitAvg,
    Column::CntHold,
    Column::CntLock,
];

/// The columns of attempts that led to no acquisition, and of what was open at the end. Text shows those that are not 0 if a row has no
/// acquisition.
pub(super) const UNFINISHED: [Column; 7] = [
    Column::Abandoned,
    Column::AbandonedWait,
    Column::TryFailed,
    Column::OpenHolds,
    Column::OpenHold,
    Column::OpenWaits,
    Column::OpenWait,
];

/// Null where no hold was seen to end.
fn measured(of: Expr) -> Expr {
    masked(of, col("measured").gt(lit(0)))
}

/// Null where no wait is known.
fn waited(of: Expr) -> Expr {
    masked(of, col("waits_known").gt(lit(0)).or(is_empty()))
}

fn is_empty() -> Expr {
    col("count").eq(lit(0))
}

/// Whole nanoseconds, truncated; 0 if there is nothing to divide by.
fn divide(sum: &str, count: &str) -> Expr {
    when(col(count).eq(lit(0))).then(lit(0)).otherwise(col(sum) / col(count))
}

/// The columns as FreeBSD prints them: whole microseconds, truncated, nothing missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freebsd {
    /// Longest hold, µs.
    pub max: i64,
    /// Longest wait, µs.
    pub wait_max: i64,
    /// Sum of holds, µs.
    pub total: i64,
    /// Sum of waits, µs.
    pub wait_total: i64,
    /// Acquisitions.
    pub count: i64,
    /// Average hold, µs.
    pub avg: i64,
    /// Average wait, µs.
    pub wait_avg: i64,
    /// Waits that began while it was held.
    pub cnt_hold: i64,
    /// Acquisitions that had to wait.
    pub cnt_lock: i64,
}

impl Columns {
    /// Returns the columns as FreeBSD prints them. A column that was not measured is 0 there, because its format has no other word.
    pub fn freebsd(&self) -> Freebsd {
        let us = |ns: Option<i64>| ns.unwrap_or(0) / 1000;
        Freebsd {
            max: us(self.max_ns),
            wait_max: us(self.wait_max_ns),
            total: us(self.total_ns),
            wait_total: us(self.wait_total_ns),
            count: self.count,
            // floor(floor(t / n) / 1000) = floor(t / (1000 n)), so the averages are FreeBSD's own.
            avg: us(self.avg_ns),
            wait_avg: us(self.wait_avg_ns),
            cnt_hold: self.cnt_hold.unwrap_or(0),
            cnt_lock: self.cnt_lock,
        }
    }
}
