//! The calls that are open, by task.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::{call::Call, fact::Fact};
use crate::compose::header::{Context, Header, Source, TaskKey};
use crate::compose::locks::Space;

/// The open calls of all tasks: usually one per task; a signal handler may call inside a call.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OpenCalls {
    by_task: FxHashMap<TaskKey, Vec<Call>>,
}

/// Calls of one task that may be open at once.
const MAX_NESTED: usize = 16;

impl OpenCalls {
    /// Adds a call of the record's task.
    pub(crate) fn push(&mut self, at: &Header, call: Call, context: &mut Context<'_>) {
        let calls = self.by_task.entry(at.key).or_default();
        if calls.len() >= MAX_NESTED {
            // Calls that were left by longjmp, by an exception or by cancellation never return.
            calls.remove(0);
            *context.unpaired += 1;
        }
        calls.push(call);
    }

    /// The innermost call of a task.
    pub(crate) fn last(&mut self, key: TaskKey) -> Option<&mut Call> {
        self.by_task.get_mut(&key)?.last_mut()
    }

    /// Whether a call is open that `fact` may be about.
    pub(crate) fn has(&self, at: &Header, fact: &Fact) -> bool {
        self.by_task.get(&at.key).into_iter().flatten().any(|call| call.matches(fact))
    }

    /// Removes the call that `fact` ends. If no such call is known for certain, returns the address of its
    /// lock, or 0.
    pub(crate) fn close(&mut self, at: &Header, fact: &Fact, context: &mut Context<'_>) -> Result<Call, u64> {
        let call = self.by_task.get_mut(&at.key).and_then(|calls| {
            let index = calls.iter().rposition(|call| call.matches(fact))?;
            // Calls above it were left without a return.
            *context.unpaired += (calls.len() - index - 1) as u64;
            calls.truncate(index + 1);
            calls.pop()
        });
        let Some(call) = call else {
            *context.unpaired += 1;
            return Err(fact.address);
        };
        context.locks.touch(call.lock, at.ts_ns);
        match (call.is_stale, fact.address) {
            (false, _) => Ok(call),
            (true, 0) if call.same_lock => Err(call.address),
            (true, 0) => {
                // It may be the return of a call on another lock.
                *context.unpaired += 1;
                Err(0)
            }
            (true, address) => Err(address),
        }
    }

    /// Returns the locks for which calls have waited since `before_ns`.
    pub(crate) fn awaited(&self, before_ns: i64) -> FxHashSet<(Space, u64)> {
        let waits = |call: &&Call| call.waits_since.is_some_and(|since_ns| since_ns <= before_ns);
        self.by_task.values().flatten().filter(waits).map(Call::address).collect()
    }

    /// Forgets the calls of a task. Returns how many there are.
    pub(crate) fn forget(&mut self, key: TaskKey) -> u64 {
        self.by_task.remove(&key).map_or(0, |calls| calls.len() as u64)
    }

    /// Marks the calls that the kernel side reported as stale: records of it are missing.
    pub(crate) fn lost(&mut self) {
        for call in self.by_task.values_mut().flatten().filter(|call| call.source == Source::Kernel) {
            (call.is_stale, call.same_lock) = (true, false);
        }
    }
}
