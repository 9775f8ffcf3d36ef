//! The columns of the table, which depend on the key of the rows and on whether waits are charged to the ends
//! of chains.

use super::row::{By, Charged, Row};
use crate::{
    key::{self, folded},
    key_columns,
    rank::{count, duration},
    trace_column,
};
use intervals::items::State;
use output::{Column, units};

/// Declares the columns. Parts are of `waited_ns`; rows of several traces have their trace.
pub fn columns(by: By, chains: bool, waited_ns: i64, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let has_holders = chains && by.holder().is_some();
    let has_states = by == By::State;
    let holder_by = match by {
        By::Task => key::By::Task,
        By::Host => key::By::Host,
        By::Lock => key::By::Lock,
        By::Site | By::State | By::Pair | By::Depth => key::By::Site,
    };
    let heading = match by {
        By::Site | By::State => "held at (lock)",
        By::Task => "held by",
        By::Pair => "held at <- waited for at (lock)",
        By::Host => "host",
        By::Lock => "lock",
        By::Depth => "chain of",
    };
    let time = if chains { "root_wait_ns" } else { "wait_caused_ns" };
    let part = move |row: &Row| units::ppm(row[time], waited_ns);
    let mut columns = Vec::new();
    if !has_holders && by != By::Depth {
        let doc = "hold, handoff, gap, owner or unknown; of shares also waker, of chains also self or cycle.";
        columns.push(
            Of::text("charged_to", |row| row.key.charged_to.map(Charged::as_str).into(), doc).identity(),
        );
    }
    columns.push(match (chains, has_holders) {
        (false, _) => duration("wait_caused", "Time that others waited.").sum(),
        (true, false) => duration("root_wait", "Time of waits whose chain ends here.").sum(),
        (true, true) => duration("root_wait", "Time of waits whose chain ends here: kept + received.").sum(),
    });
    let doc = if chains { "root_wait divided by all waits." } else { "wait_caused divided by all waits." };
    columns.push(Of::ppm("part", part, doc).heading("percent").not_sortable());
    if has_holders {
        let doc = "The lock that most of passed goes to.";
        columns.extend([
            duration("wait_caused", "Time that others waited for it: kept + passed.").sum(),
            duration("kept", "The part of it while the holder waited for no lock.").sum(),
            duration("passed", "The part of it while the holder waited for another lock.").sum(),
            duration("received", "Time of waits for other locks, whose holders waited for this one.").sum(),
            Of::text("passed_to", |row| row.key.passed_to.as_deref().into(), doc).programs(),
        ]);
    }
    if chains && has_states {
        let others = "The part of it for other locks, whose holders waited for this one.";
        columns.extend([
            duration("direct", "The part of it for this lock itself.").sum(),
            duration("through_others", others).sum(),
            count("deepest", "The most locks in a chain."),
        ]);
    }
    if chains && !has_holders {
        columns.push(count("max_waiters", "The most waits that had this end at one time."));
    }
    if !chains && !has_states {
        let doc = "Shares of waits that lasted while events were lost.";
        columns.extend([
            count("shares", "Shares of waits.").sum(),
            duration("longest", "The longest share."),
            count("cut_by_loss", doc).identity(),
        ]);
    }
    if has_states {
        let state = "The state of the holder's task: running, preempted, asleep, uninterruptible, stopped, ready, lock, idle or unknown.";
        let on =
            "The lock that it waited for and where, or the system call and the functions in which it slept.";
        columns.extend([
            Of::text("state", |row| row.key.state.map(State::as_str).into(), state),
            Of::text("on", |row| row.key.on.as_deref().into(), on).programs(),
        ]);
    }
    columns.push(Of::name(heading, |row| row.name.as_str().into()));
    if by == By::Depth {
        let depth = |row: &Row| row.key.depth;
        columns.push(Of::count("depth", depth, "The number of locks in the chain.").identity());
    } else {
        columns.extend(key_columns(holder_by, "holder_", |row: &Row| row.key.holder.as_ref()));
    }
    if by == By::Pair {
        columns.extend(key_columns(key::By::Site, "waiter_", |row: &Row| row.key.waiter.as_ref()));
    }
    if !chains && matches!(by, By::Site | By::Pair) {
        let stack = Of::text("holder_stack", |row| folded(&row.key.holder_stack), "The holder's stack.");
        columns.push(stack.identity());
    }
    if by == By::Pair {
        let stack = Of::text("waiter_stack", |row| folded(&row.key.waiter_stack), "The waiter's stack.");
        columns.push(stack.identity());
    }
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}
