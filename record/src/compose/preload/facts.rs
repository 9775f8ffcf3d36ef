//! The fact that a record of klock's library reports: its fields enter, a [`Fact`] leaves. Pure functions.

use trace_format::{
    TaskId,
    preload::{Record, call, op},
    wire::api,
};

use crate::{
    compose::user::fact::{Action, Begin, Fact, Outcome, mode_of},
    preload::records::Unit,
};

/// The fact that a record reports, given the unit behind it.
pub(crate) fn fact(record: &Record, rest: Unit, task: impl Fn(u32) -> Option<TaskId>) -> Option<Fact> {
    const DEAD: Option<i32> = Some(libc::EOWNERDEAD);
    let returned = |begin, outcome| Action::Returned(begin, outcome);
    let action = match record.op() {
        op::ACQUIRED => returned(Begin::NotReported, Outcome::Acquired(None)),
        op::ACQUIRED_OWNER_DIED => returned(Begin::NotReported, Outcome::Acquired(DEAD)),
        op::WAIT => Action::Waits { owner: u32::try_from(rest[0]).ok().and_then(task) },
        op::WAITED => returned(Begin::Reported, Outcome::Acquired(None)),
        op::WAITED_OWNER_DIED => returned(Begin::Reported, Outcome::Acquired(DEAD)),
        op::FAILED => returned(Begin::ReportedIfContended, Outcome::Failed(errno(rest[0]))),
        op::CONDITION_WAIT => Action::ConditionWait(rest[0]),
        op::CONDITION_WAITED => Action::ConditionReturned(Some(rest[0]), errno(rest[1])),
        op::RELEASED => Action::Released { mode: mode_of(record.api()), only_owner: None },
        op::INIT => Action::Initialised,
        op::DESTROY => Action::Destroyed,
        op::POSTED => Action::Posted,
        _ => return None,
    };
    let variant = match record.call() {
        call::TRY => api::TRY,
        call::TIMED => api::TIMED,
        _ => api::NONE,
    };
    Some(Fact { function: api::pack(record.api(), variant), address: record.address(), action })
}

/// A positive errno; `None` if the word cannot be one.
fn errno(word: u64) -> Option<i32> {
    const LAST: u64 = 4095;
    (1..=LAST).contains(&word).then_some(word as i32)
}
