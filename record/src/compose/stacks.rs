//! The stacks table. It gives each stack of the kernel's stack map a dense id of the trace.
//!
//! An id of the map stands for the same frames during a whole recording, but user frames mean something else
//! in another process. Frames are looked up and resolved elsewhere; [`Stacks::take_new`] returns the stacks
//! that were seen for the first time.
//!
//! Memory is bounded: the stacks that were seen last are remembered, and a stack that comes again after it
//! was forgotten gets another id.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{
    StackId,
    wire::{WireStack, WireUserStack, stack},
};

use crate::{
    compose::{
        recent::{Recent, RecentKey},
        remembered::Remembered,
        tasks::ProcessKey,
    },
    names::unwind::{Frames, UnwoundId},
};

mod waiting;

use waiting::{MAX_AGE_NS, Unwound, Waiting};

/// The location of the frames of one half of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Half {
    Absent,
    /// In the stack map, under this id.
    Map(i32),
    /// Here, leaf first: the stack map was full.
    Inline(Box<[u64]>),
    /// Here, leaf first: unwound by the recorder. The first ones, of this number, are certain.
    Unwound(Box<[u64]>, u8),
    /// Here, leaf first, and all of them are return addresses: the leaf is the call of the recorded function.
    Calls(Box<[u64]>),
}

/// A stack that was seen for the first time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RawStack {
    /// The address space of the user half, if there is one, and its PID.
    pub process: Option<(ProcessKey, u32)>,
    pub kernel: Half,
    pub user: Half,
    /// The return address on top of the user stack at the entry of a function, which frame pointers do not
    /// show yet; 0 if there is none.
    pub caller: u64,
}

impl RawStack {
    /// Inserts the caller after the leaf, unless it is there already.
    pub(crate) fn with_caller(&self, mut user: Vec<u64>) -> Vec<u64> {
        if self.caller != 0 && !user.is_empty() && user.get(1) != Some(&self.caller) {
            user.insert(1, self.caller);
        }
        user
    }
}

/// The fields of a wire event that locate its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackRef {
    /// The address space and its PID.
    pub process: (ProcessKey, u32),
    /// Id of the kernel half, or one of [`stack`].
    pub kernel: i32,
    /// Id of the user half, or one of [`stack`].
    pub user: i32,
    /// See [`RawStack::caller`].
    pub caller: u64,
    /// The CPU and the number of the event, under which inline frames were announced.
    pub event: (u32, u32),
    /// It is the stack of the event's peer.
    pub peer: bool,
    /// The BPF program copies the top of the user stack, if it fits.
    pub copied: bool,
}

/// A user half that is known by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum User {
    Absent,
    Map(i32),
    Unwound(UnwoundId),
}

/// A stack by its process, kernel half, user half and caller.
type Mapped = (Option<ProcessKey>, i32, User, u64);

impl RecentKey for Mapped {
    fn number(&self) -> usize {
        let user = match self.2 {
            User::Absent => 0,
            User::Map(id) => id as usize,
            User::Unwound(UnwoundId(number)) => number as usize,
        };
        (self.1 as usize).wrapping_mul(31) ^ user
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stacks {
    /// Stacks with both halves in the map, unwound or absent: nearly all.
    #[serde(skip)]
    mapped: Remembered<Mapped, StackId, MAX_STACKS>,
    #[serde(skip)]
    recent: Recent<Mapped, StackId, 256>,
    /// The others, by a hash of 64 bits: two of a million stacks have the same one with a probability of 3 in
    /// 100 million.
    inlined: Remembered<u64, StackId, MAX_STACKS>,
    /// Frames that were announced before their event, by CPU, number, user and peer.
    #[serde(skip)]
    announced: FxHashMap<(u32, u32, bool, bool), Announced>,
    /// The time of the last look for those that are too old.
    #[serde(skip)]
    announced_ns: u64,
    /// Number of stacks whose inline frames had no room.
    pub(crate) not_announced: u64,
    /// Stacks that were unwound before their event.
    #[serde(skip)]
    unwound: Waiting,
    #[serde(skip)]
    unwound_frames: Remembered<UnwoundId, UnwoundFrames, MAX_UNWOUND>,
    #[serde(skip)]
    unwound_ids: Remembered<UnwoundFrames, UnwoundId, MAX_UNWOUND>,
    /// Number of unwound frames so far.
    #[serde(skip)]
    unwound_count: u32,
    /// Whether a BPF program has recognized a stack whose frames are forgotten.
    #[serde(skip)]
    misses_frames: bool,
    /// Whether user stacks are copied, to be unwound.
    pub unwinds: bool,
    /// Number of user stacks that should have been unwound, and are by frame pointers.
    pub(crate) not_unwound: u64,
    new: Vec<(StackId, RawStack)>,
    count: i32,
}

/// The addresses of unwound frames, leaf first, and how many of them are certain.
type UnwoundFrames = (Arc<[u64]>, u8);

/// Inline frames, and the time at which they were taken.
#[derive(Debug)]
struct Announced {
    ts_ns: u64,
    frames: Box<[u64]>,
}

/// Maximum number of inline frames that wait for their event, 30 MB with 60 addresses each. The event of some
/// never comes, because its ring was full.
const MAX_ANNOUNCED: usize = 1 << 16;
/// Number of stacks that are remembered, of each sort: as many as a table of 2^17 places holds. They take up
/// to 20 MB.
const MAX_STACKS: usize = 7 << 14;
/// Number of unwound stacks whose frames are remembered. Those of 30 frames take up to 20 MB.
const MAX_UNWOUND: usize = 7 << 12;

impl Stacks {
    /// Adds frames that did not fit into the stack map. Their event is drained in the same round.
    pub(crate) fn announce(&mut self, record: &WireStack) {
        if self.announced.len() >= MAX_ANNOUNCED {
            let newest = record.ts_ns;
            // A look at all of them takes as long as a thousand records, and most of them are still waited
            // for.
            if newest.saturating_sub(self.announced_ns) >= MAX_AGE_NS / 10 {
                self.announced_ns = newest;
                self.announced.retain(|_, old| newest.saturating_sub(old.ts_ns) < MAX_AGE_NS);
            }
            if self.announced.len() >= MAX_ANNOUNCED {
                self.not_announced += 1;
                return;
            }
        }
        let count = usize::from(record.count).min(record.frames.len());
        let announced = Announced { ts_ns: record.ts_ns, frames: record.frames[..count].into() };
        self.announced.insert((record.cpu, record.seq, record.user != 0, record.peer != 0), announced);
    }

    /// Adds a stack that was unwound, and returns the number of its frames; `None` if there are none. Its
    /// event is composed later.
    pub(crate) fn announce_unwound(&mut self, header: &WireUserStack, frames: Frames) -> Option<UnwoundId> {
        if frames.addresses.is_empty() {
            return None;
        }
        let certain = u8::try_from(frames.certain).unwrap_or(u8::MAX);
        let frames = (Arc::from(frames.addresses), certain);
        let id = self.unwound_ids.get(&frames).unwrap_or_else(|| {
            let id = UnwoundId(self.unwound_count);
            self.unwound_count += 1;
            self.unwound_ids.insert(frames.clone(), id);
            id
        });
        if self.unwound_frames.get(&id).is_none() {
            self.unwound_frames.insert(id, frames);
        }
        self.insert_unwound(header, id, false);
        Some(id)
    }

    /// Adds a stack whose frames are known by their number, without a walk of its own. Returns `false` if
    /// they are forgotten.
    pub(crate) fn announce_known(&mut self, header: &WireUserStack, frames: Option<UnwoundId>) -> bool {
        let Some(frames) = frames else { return true };
        let is_known = self.unwound_frames.get(&frames).is_some();
        if is_known {
            self.insert_unwound(header, frames, true);
        }
        is_known
    }

    /// Returns whether a BPF program has recognized a stack whose frames are forgotten, since the last call.
    /// It is to forget what it recognizes.
    pub(crate) fn take_misses(&mut self) -> bool {
        std::mem::take(&mut self.misses_frames)
    }

    /// Drops the stacks of a process since a time that were not walked themselves: it runs another program
    /// since then.
    pub(crate) fn forget_known_since(&mut self, tgid: u32, ts_ns: u64) {
        self.unwound.retain(|stack| !stack.is_known || stack.tgid != tgid || stack.ts_ns < ts_ns);
    }

    fn insert_unwound(&mut self, header: &WireUserStack, frames: UnwoundId, is_known: bool) {
        let &WireUserStack { ts_ns, cpu, seq, peer, incarnation, .. } = header;
        let stack = Unwound { ts_ns, tgid: incarnation.tgid, frames, is_known };
        self.unwound.insert((cpu, seq, peer != 0), stack);
    }

    /// Returns the id of a stack; `None` if it was not recorded, has no frames, or was lost.
    pub(crate) fn id(&mut self, at: &StackRef) -> Option<StackId> {
        let kernel_there = is_there(at.kernel);
        let (cpu, seq) = at.event;
        let may_be_copied = at.copied && at.user != stack::NONE;
        let unwound = match stack::unwound_number(at.user) {
            // Whatever a ring delivers: only numbers that were given to the programs stand for a stack.
            Some(number) => (number < self.unwound_count).then_some(UnwoundId(number)),
            None if may_be_copied => self.unwound.take((cpu, seq, at.peer)).map(|stack| stack.frames),
            None => None,
        };
        let user_there = is_there(at.user) || unwound.is_some();
        self.not_unwound += u64::from(self.unwinds && at.copied && is_there(at.user) && unwound.is_none());
        if !kernel_there && !user_there {
            return None;
        }
        let known_user = match &unwound {
            Some(unwound) => Some(User::Unwound(*unwound)),
            None if at.user == stack::INLINE => None,
            None => Some(if at.user >= 0 { User::Map(at.user) } else { User::Absent }),
        };
        // An unwound stack has the caller, or ends before it.
        let caller = if user_there && unwound.is_none() { at.caller } else { 0 };
        if let Some(user) = known_user.filter(|_| at.kernel != stack::INLINE) {
            let process = user_there.then_some(at.process.0);
            let key = (process, at.kernel.max(-1), user, caller);
            if let Some(id) = self.recent.get_or(key, || self.mapped.get(&key)) {
                return Some(id);
            }
            let kernel = if at.kernel >= 0 { Half::Map(at.kernel) } else { Half::Absent };
            let user = match user {
                User::Absent => Half::Absent,
                User::Map(id) => Half::Map(id),
                User::Unwound(frames) => match self.unwound_half(frames) {
                    Some(half) => half,
                    None => return self.id_without_user(at),
                },
            };
            let id = self.add(RawStack { process: user_there.then_some(at.process), kernel, user, caller });
            self.mapped.insert(key, id);
            return Some(id);
        }
        let kernel = self.half(at, at.kernel, false);
        let by_pointers = self.half(at, at.user, true);
        let user = match unwound {
            None => by_pointers,
            Some(unwound) => self.unwound_half(unwound).unwrap_or(Half::Absent),
        };
        if kernel == Half::Absent && user == Half::Absent {
            return None;
        }
        let has_user = user != Half::Absent;
        let process = has_user.then_some(at.process);
        let raw = RawStack { process, kernel, user, caller: if has_user { caller } else { 0 } };
        Some(self.id_of_raw(raw))
    }

    /// Returns the id of the kernel half of a stack. The frames of the user half are forgotten.
    fn id_without_user(&mut self, at: &StackRef) -> Option<StackId> {
        self.id(&StackRef { user: stack::ABSENT, caller: 0, copied: false, ..*at })
    }

    fn id_of_raw(&mut self, raw: RawStack) -> StackId {
        let mut hasher = DefaultHasher::new();
        raw.hash(&mut hasher);
        let hash = hasher.finish();
        self.inlined.get(&hash).unwrap_or_else(|| {
            let id = self.add(raw);
            self.inlined.insert(hash, id);
            id
        })
    }

    /// Returns the id of a stack of return addresses, leaf first.
    pub(crate) fn id_of_calls(&mut self, process: (ProcessKey, u32), frames: Box<[u64]>) -> StackId {
        let user = Half::Calls(frames);
        self.id_of_raw(RawStack { process: Some(process), kernel: Half::Absent, user, caller: 0 })
    }

    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Takes the stacks that were first seen since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<(StackId, RawStack)> {
        std::mem::take(&mut self.new)
    }

    /// Returns the frames with a number. If they are forgotten, there are none, and the stack counts as not
    /// unwound.
    fn unwound_half(&mut self, id: UnwoundId) -> Option<Half> {
        let found = self.unwound_frames.get(&id);
        if found.is_none() {
            (self.misses_frames, self.not_unwound) = (true, self.not_unwound + 1);
        }
        let (frames, certain) = found?;
        Some(Half::Unwound((*frames).into(), certain))
    }

    fn half(&mut self, at: &StackRef, id: i32, user: bool) -> Half {
        match id {
            stack::INLINE => match self.announced.remove(&(at.event.0, at.event.1, user, at.peer)) {
                Some(announced) if !announced.frames.is_empty() => Half::Inline(announced.frames),
                _ => Half::Absent,
            },
            id if id >= 0 => Half::Map(id),
            _ => Half::Absent,
        }
    }

    fn add(&mut self, raw: RawStack) -> StackId {
        let id = StackId(self.count);
        self.count += 1;
        self.new.push((id, raw));
        id
    }
}

fn is_there(id: i32) -> bool {
    id >= 0 || id == stack::INLINE
}

#[cfg(test)]
mod tests;
