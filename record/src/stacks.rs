//! The stacks table: ids of the kernel's stack map in, dense ids of the trace out.
//!
//! An id of the map stands for the same frames during a whole recording, but user frames mean something else in another process.
//! Frames are looked up and resolved elsewhere; [`Stacks::take_new`] returns the stacks that were seen for the first time.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{
    StackId,
    wire::{WireStack, WireUserStack, stack},
};

use crate::{tasks::ProcessKey, unwind::Frames};

/// Limit of user stacks that are not unwound, for the trace.
pub(crate) const BY_FRAME_POINTERS: &str = "user stacks by frame pointers: the caller is always right; frames above code without them are missing, or guesses (?)";

/// The location of the frames of one half of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Half {
    /// There are no frames.
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
pub struct RawStack {
    /// The address space of the user half, if there is one, and its PID.
    pub process: Option<(ProcessKey, u32)>,
    /// Kernel frames.
    pub kernel: Half,
    /// User frames.
    pub user: Half,
    /// The return address on top of the user stack at the entry of a function, which frame pointers do not show yet; 0 if
    /// there is none.
    pub caller: u64,
}

impl RawStack {
    /// Inserts the caller after the leaf, unless it is there already.
    pub fn with_caller(&self, mut user: Vec<u64>) -> Vec<u64> {
        if self.caller != 0 && !user.is_empty() && user.get(1) != Some(&self.caller) {
            user.insert(1, self.caller);
        }
        user
    }
}

/// The fields of a wire event that locate its stack.
#[derive(Clone, Copy, Debug)]
pub struct StackRef {
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

/// All stacks that were seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stacks {
    /// Stacks with both halves in the map or absent: nearly all.
    #[serde(skip)]
    mapped: FxHashMap<(Option<ProcessKey>, i32, i32, u64), StackId>,
    inlined: FxHashMap<RawStack, StackId>,
    /// Frames that were announced before their event, by CPU, number, user and peer.
    #[serde(skip)]
    announced: FxHashMap<(u32, u32, bool, bool), Announced>,
    /// Stacks that were unwound before their event, by CPU, number and peer.
    #[serde(skip)]
    unwound: FxHashMap<(u32, u32, bool), Unwound>,
    /// Whether user stacks are copied, to be unwound.
    pub unwinds: bool,
    /// Number of user stacks that should have been unwound, and are by frame pointers.
    not_unwound: u64,
    new: Vec<(StackId, RawStack)>,
    count: i32,
}

/// Unwound frames, and the time at which they were copied.
#[derive(Debug)]
struct Unwound {
    ts_ns: u64,
    frames: Box<[u64]>,
    certain: u8,
}

/// Inline frames, and the time at which they were taken.
#[derive(Debug)]
struct Announced {
    ts_ns: u64,
    frames: Box<[u64]>,
}

/// If there are more inline frames than this, those whose event never came, because its ring was full, are dropped.
const MAX_ANNOUNCED: usize = 1 << 16;
/// The age from which frames have no event any more: events are composed within two rounds of being drained. If old frames were
/// kept until the event numbers of their CPU wrap around, they would be given to another event.
const MAX_AGE_NS: u64 = 10_000_000_000;
/// As [`MAX_ANNOUNCED`], for unwound stacks. Every task that is off-CPU has one.
const MAX_UNWOUND: usize = 1 << 19;

impl Stacks {
    /// Adds frames that did not fit into the stack map. Their event is drained in the same round.
    pub fn announce(&mut self, record: &WireStack) {
        if self.announced.len() >= MAX_ANNOUNCED {
            let newest = record.ts_ns;
            self.announced.retain(|_, old| newest.saturating_sub(old.ts_ns) < MAX_AGE_NS);
        }
        let count = usize::from(record.count).min(record.frames.len());
        let announced = Announced { ts_ns: record.ts_ns, frames: record.frames[..count].into() };
        self.announced.insert((record.cpu, record.seq, record.user != 0, record.peer != 0), announced);
    }

    /// Adds a stack that was unwound. Its event is composed later.
    pub(crate) fn announce_unwound(&mut self, header: &WireUserStack, frames: Frames) {
        if self.unwound.len() >= MAX_UNWOUND {
            let newest = header.ts_ns;
            self.unwound.retain(|_, old| newest.saturating_sub(old.ts_ns) < MAX_AGE_NS);
        }
        if !frames.addresses.is_empty() {
            let certain = u8::try_from(frames.certain).unwrap_or(u8::MAX);
            let unwound = Unwound { ts_ns: header.ts_ns, frames: frames.addresses.into(), certain };
            self.unwound.insert((header.cpu, header.seq, header.peer != 0), unwound);
        }
    }

    /// Returns the id of a stack; `None` if it was not recorded, has no frames, or was lost.
    pub fn id(&mut self, at: &StackRef) -> Option<StackId> {
        let kernel_there = is_there(at.kernel);
        let unwound = if at.user == stack::NONE || self.unwound.is_empty() {
            None
        } else {
            self.unwound.remove(&(at.event.0, at.event.1, at.peer))
        };
        let user_there = is_there(at.user) || unwound.is_some();
        self.not_unwound += u64::from(self.unwinds && at.copied && is_there(at.user) && unwound.is_none());
        if !kernel_there && !user_there {
            return None;
        }
        if at.kernel != stack::INLINE && at.user != stack::INLINE && unwound.is_none() {
            let process = user_there.then_some(at.process.0);
            let caller = if user_there { at.caller } else { 0 };
            let key = (process, at.kernel.max(-1), at.user.max(-1), caller);
            if let Some(&id) = self.mapped.get(&key) {
                return Some(id);
            }
            let half = |id: i32| if id >= 0 { Half::Map(id) } else { Half::Absent };
            let raw = RawStack {
                process: user_there.then_some(at.process),
                kernel: half(at.kernel),
                user: half(at.user),
                caller,
            };
            let id = self.add(raw);
            self.mapped.insert(key, id);
            return Some(id);
        }
        let kernel = self.half(at, at.kernel, false);
        let by_pointers = self.half(at, at.user, true);
        let user = unwound.map_or(by_pointers, |unwound| Half::Unwound(unwound.frames, unwound.certain));
        if kernel == Half::Absent && user == Half::Absent {
            return None;
        }
        let has_user = user != Half::Absent;
        // An unwound stack has the caller, or ends before it.
        let is_unwound = matches!(user, Half::Unwound(..));
        let raw = RawStack {
            process: has_user.then_some(at.process),
            kernel,
            user,
            caller: if has_user && !is_unwound { at.caller } else { 0 },
        };
        if let Some(&id) = self.inlined.get(&raw) {
            return Some(id);
        }
        let id = self.add(raw.clone());
        self.inlined.insert(raw, id);
        Some(id)
    }

    /// Returns the id of a stack of return addresses, leaf first.
    pub fn id_of_calls(&mut self, process: (ProcessKey, u32), frames: Box<[u64]>) -> StackId {
        let raw =
            RawStack { process: Some(process), kernel: Half::Absent, user: Half::Calls(frames), caller: 0 };
        if let Some(&id) = self.inlined.get(&raw) {
            return id;
        }
        let id = self.add(raw.clone());
        self.inlined.insert(raw, id);
        id
    }

    /// Returns the number of user stacks that should have been unwound, but their copies did not fit or came too late.
    pub fn not_unwound(&self) -> u64 {
        self.not_unwound
    }

    /// The number of stacks so far.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Takes the stacks that were first seen since the last call.
    pub fn take_new(&mut self) -> Vec<(StackId, RawStack)> {
        std::mem::take(&mut self.new)
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
mod tests {
    use trace_format::wire::{MAX_FRAMES, code};

    use super::*;

    fn at(process: u32, kernel: i32, user: i32) -> StackRef {
        StackRef {
            process: (ProcessKey(process), 10),
            kernel,
            user,
            caller: 0,
            event: (0, 0),
            peer: false,
            copied: true,
        }
    }

    fn inline(cpu: u32, seq: u32, user: bool, frames: &[u64]) -> WireStack {
        let mut all = [0; MAX_FRAMES];
        all[..frames.len()].copy_from_slice(frames);
        let count = frames.len() as u8;
        WireStack {
            ts_ns: 0,
            code: code::STACK,
            user: u8::from(user),
            peer: 0,
            count,
            cpu,
            seq,
            padding: 0,
            frames: all,
        }
    }

    #[test]
    fn the_same_user_frames_in_two_processes_are_two_stacks() {
        let mut stacks = Stacks::default();
        let here = stacks.id(&at(0, stack::NONE, 7));
        assert_eq!(here, Some(StackId(0)));
        assert_eq!(stacks.id(&at(1, stack::NONE, 7)), Some(StackId(1)));
        assert_eq!(stacks.id(&at(0, stack::NONE, 7)), here);
        assert_eq!(stacks.take_new().len(), 2);
    }

    #[test]
    fn a_stack_of_kernel_frames_alone_is_the_same_in_every_process() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.id(&at(0, 7, stack::ABSENT)), stacks.id(&at(1, 7, stack::ABSENT)));
        assert_eq!(stacks.take_new()[0].1.process, None);
    }

    #[test]
    fn a_stack_without_frames_or_with_lost_ones_has_no_id() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.id(&at(0, stack::NONE, stack::ABSENT)), None);
        assert_eq!(stacks.id(&at(0, stack::LOST, stack::LOST)), None);
        assert_eq!(stacks.count, 0);
    }

    #[test]
    fn frames_that_travel_inline_join_their_event_by_cpu_and_number() {
        let mut stacks = Stacks::default();
        stacks.announce(&inline(1, 5, true, &[100, 200]));
        stacks.announce(&inline(1, 6, true, &[100, 200]));
        let of = |seq| StackRef { event: (1, seq), ..at(0, stack::NONE, stack::INLINE) };
        let first = stacks.id(&of(5));
        assert_eq!(first, Some(StackId(0)));
        assert_eq!(stacks.id(&of(6)), first, "equal frames are one stack");
        assert_eq!(stacks.id(&of(7)), None, "nothing was announced for it");
        assert_eq!(stacks.take_new()[0].1.user, Half::Inline([100, 200].into()));
    }

    #[test]
    fn unwound_frames_replace_those_by_frame_pointers_and_equal_ones_are_one_stack() {
        let mut stacks = Stacks::default();
        let unwound = |stacks: &mut Stacks, seq, addresses: &[u64]| {
            let header = WireUserStack { cpu: 1, seq, ..Default::default() };
            stacks.announce_unwound(&header, Frames { addresses: addresses.to_vec(), certain: 1 });
        };
        unwound(&mut stacks, 5, &[100, 200]);
        unwound(&mut stacks, 6, &[100, 200]);
        let of = |seq, user| StackRef { event: (1, seq), ..at(0, stack::NONE, user) };
        let first = stacks.id(&of(5, 7));
        assert_eq!(stacks.id(&of(6, 8)), first, "whatever the frame pointers led to");
        assert_ne!(stacks.id(&of(7, 7)), first, "it was not copied");
        assert_eq!(stacks.take_new()[0].1.user, Half::Unwound([100, 200].into(), 1));
    }

    #[test]
    fn stacks_whose_copy_did_not_come_are_counted() {
        let mut stacks = Stacks { unwinds: true, ..Stacks::default() };
        let header = WireUserStack { cpu: 1, seq: 5, ..Default::default() };
        stacks.announce_unwound(&header, Frames { addresses: vec![100, 200], certain: 2 });
        let of = |seq, user, copied| StackRef { event: (1, seq), copied, ..at(0, stack::NONE, user) };
        stacks.id(&of(5, 7, true));
        assert_eq!(stacks.not_unwound(), 0);
        stacks.id(&of(6, stack::ABSENT, true));
        stacks.id(&of(7, 7, false));
        assert_eq!(stacks.not_unwound(), 0, "there is no user stack, or it is never copied");
        stacks.id(&of(8, 7, true));
        assert_eq!(stacks.not_unwound(), 1);
        stacks.unwinds = false;
        stacks.id(&of(9, 7, true));
        assert_eq!(stacks.not_unwound(), 1, "nothing is unwound");
    }

    #[test]
    fn frames_whose_event_never_came_are_forgotten_and_those_that_wait_for_theirs_are_not() {
        let mut stacks = Stacks::default();
        let announce = |stacks: &mut Stacks, ts_ns, seq| {
            stacks.announce(&WireStack { ts_ns, ..inline(0, seq, true, &[100]) });
        };
        for seq in 0..MAX_ANNOUNCED as u32 {
            announce(&mut stacks, 0, seq);
        }
        announce(&mut stacks, MAX_AGE_NS, u32::MAX - 1);
        announce(&mut stacks, MAX_AGE_NS, u32::MAX);
        assert_eq!(stacks.announced.len(), 2);
        let at = StackRef { event: (0, u32::MAX - 1), ..at(0, stack::NONE, stack::INLINE) };
        assert!(stacks.id(&at).is_some());
    }

    #[test]
    fn the_same_calls_are_one_stack_in_a_process_and_another_one_in_the_next() {
        let mut stacks = Stacks::default();
        let mut id = |process, frames: &[u64]| stacks.id_of_calls((ProcessKey(process), 10), frames.into());
        assert_eq!(id(0, &[7, 8]), id(0, &[7, 8]));
        assert_ne!(id(0, &[7, 8]), id(1, &[7, 8]));
        assert_ne!(id(0, &[7, 8]), id(0, &[7]));
        assert_eq!(stacks.take_new().len(), 3);
    }

    #[test]
    fn the_caller_that_the_frame_pointers_miss_stands_after_the_leaf() {
        let raw = RawStack { process: None, kernel: Half::Absent, user: Half::Map(1), caller: 20 };
        assert_eq!(raw.with_caller(vec![10, 30]), [10, 20, 30]);
        assert_eq!(raw.with_caller(vec![10, 20, 30]), [10, 20, 30]);
        assert_eq!(raw.with_caller(vec![10]), [10, 20]);
        assert_eq!(RawStack { caller: 0, ..raw }.with_caller(vec![10, 30]), [10, 30]);
    }
}
