//! A deadlock as a sentence.

use crate::{
    engine::deadlock::{Deadlock, Member},
    input::names::Names,
    output::units,
};

/// Returns `deadlock at the end: A has x (p.c:1), waits for y (p.c:2) for 1.2 s; ...; 1 more behind it`. A wait with a time-out adds `until its
/// time-out`.
pub(in crate::input) fn describe(deadlock: &Deadlock, end_ns: i64, names: &Names) -> String {
    let member = |Member { has, wants }: &Member| {
        let waited_ns = end_ns.saturating_sub(wants.start_ns);
        format!(
            "{} has {} ({}), waits for {} ({}) for {}{}",
            names.task_label(wants.task),
            names.lock_label(has.lock),
            names.point(has.lock, has.stack).label(),
            names.lock_label(wants.lock),
            names.point(wants.lock, wants.stack).label(),
            units::duration(waited_ns),
            if wants.is_timed { ", until its time-out" } else { "" }
        )
    };
    let mut parts: Vec<String> = deadlock.members.iter().map(member).collect();
    if deadlock.behind > 0 {
        parts.push(format!("{} more behind it", deadlock.behind));
    }
    format!("deadlock at the end: {}", parts.join("; "))
}
