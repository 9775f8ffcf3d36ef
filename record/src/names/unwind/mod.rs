//! Unwinds the registers and the top of user stacks, as BPF programs copied them, on a thread of its own. The
//! copies are other programs' private data: they are dropped as soon as they are unwound.
//!
//! Unwind tables come from the files that the processes map, by way of a parser without privileges
//! ([`files`](crate::names::files)). The crate framehop reads `.eh_frame` in the process that unwinds, and
//! klock reads no file of a target.

use std::{
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use trace_format::wire::{Incarnation, WireUserStack};

use crate::{
    kernel::known_stacks::KnownStacks,
    names::{
        files::TargetFiles,
        symbols::{self, Mappings, MapsText},
    },
    stop::Stop,
    system::priority::RealTime,
};

mod memo;
mod table;
mod walk;

use memo::{Basis, Memo};
pub(crate) use table::{Cfa, MAX_RULES, Rule, SavedBp, UnwindPage, UnwindTable};
use walk::{Code, Dependencies, Registers, StackCopy};
pub(crate) use walk::{Frames, UnwoundId};

/// Maximum size of the copies that are not unwound yet. Stacks beyond it stay those by frame pointers.
const MAX_PENDING_BYTES: usize = 32 << 20;
/// Maximum number of rows of all tables, 30 MB. If there would be more, the tables are read again as they are
/// needed.
const MAX_TABLE_ROWS: usize = 5 << 20;
/// Maximum time that events wait for their stacks, in ns: a file may take seconds to parse.
const MAX_DELAY_NS: u64 = 5_000_000_000;
/// Number of copies that are unwound before the thread's priority is looked at, some milliseconds.
const COPIES_AT_ONCE: usize = 64;
/// Maximum time at the end of a recording.
const MAX_AT_END: Duration = Duration::from_secs(10);

/// A copy of the top of a user stack.
#[derive(Debug)]
pub(crate) struct UserStack {
    pub(crate) header: WireUserStack,
    pub(crate) bytes: Box<[u8]>,
    /// The stack as the kernel walks it by frame pointers.
    pub(crate) by_pointers: Arc<[u64]>,
}

/// The frames of a copy, and what they depend on.
#[derive(Debug)]
struct UnwoundStack {
    header: WireUserStack,
    frames: Frames,
    used: Dependencies,
    /// Number of changes of the process's mappings so far.
    changes: u32,
    /// Whether the code at each address is known, or known not to be code.
    is_known: bool,
}

/// Takes the frames of a copy. Returns their number; `None` if there are none.
pub(crate) type TakeFrames<'a> = dyn FnMut(&WireUserStack, Frames) -> Option<UnwoundId> + 'a;

/// The copies of one round of the recording.
#[derive(Debug, Default)]
struct Round {
    /// Processes that ran a new program from these times on.
    ended: Vec<(u32, i64)>,
    maps: Vec<MapsText>,
    copies: Vec<UserStack>,
    /// All records up to this time were drained in this round or an earlier one.
    complete_ns: u64,
}

#[derive(Debug)]
struct Answer {
    stacks: Vec<UnwoundStack>,
    bytes: usize,
    complete_ns: u64,
}

/// A handle of the unwinding thread.
#[derive(Debug)]
pub(crate) struct Unwinder {
    requests: Option<Sender<Round>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    next: Round,
    next_bytes: usize,
    pending_bytes: usize,
    /// Number of rounds that were sent to the thread, and of those that it has answered.
    sent: u64,
    answered: u64,
    /// Copies of all events up to this time are unwound.
    reached_ns: u64,
    memo: Memo,
}

impl Unwinder {
    /// Starts the thread. `programs` recognize stacks that were unwound before.
    pub(crate) fn start(stop: Stop, programs: Option<KnownStacks>) -> std::io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<Round>();
        let (outbox, answers) = mpsc::channel();
        let thread = std::thread::Builder::new().name("klock-unwind".to_owned()).spawn(move || {
            let mut worker = Worker::new(stop, RealTime::start());
            for round in inbox {
                if outbox.send(worker.unwind_all(round)).is_err() {
                    break;
                }
            }
            worker.mappings.files.stop_helpers();
        })?;
        Ok(Self {
            requests: Some(requests),
            answers,
            thread: Some(thread),
            next: Round::default(),
            next_bytes: 0,
            pending_bytes: 0,
            sent: 0,
            answered: 0,
            reached_ns: 0,
            memo: Memo::new(programs),
        })
    }

    /// Returns the number of the frames of a copy if they are known: `Some(None)` if there are none.
    pub(crate) fn known(&mut self, header: &WireUserStack, bytes: &[u8]) -> Option<Option<UnwoundId>> {
        self.memo.find(header, bytes)
    }

    /// Lets the BPF programs recognize no stack: the frames of some are forgotten.
    pub(crate) fn forget_known(&mut self) {
        self.memo.forget_known();
    }

    pub(crate) fn add(&mut self, copy: UserStack) {
        if self.pending_bytes + self.next_bytes + copy.bytes.len() <= MAX_PENDING_BYTES {
            self.next_bytes += copy.bytes.len();
            self.next.copies.push(copy);
        }
    }

    /// Reports that a PID belongs to another program from a time on. Returns whether [`known`](Self::known)
    /// may have found frames of the former program for copies since then.
    pub(crate) fn end_incarnation(&mut self, pid: u32, ts_ns: i64) -> bool {
        self.next.ended.push((pid, ts_ns));
        self.memo.end_incarnation(pid, ts_ns.cast_unsigned(), self.sent)
    }

    /// Adds mappings that a process has had.
    pub(crate) fn add_maps(&mut self, text: MapsText) {
        self.next.maps.push(text);
    }

    /// Ends this round, in which all records up to `complete_ns` were drained. Passes the frames of copies to
    /// `take`, and returns the time up to which they are complete.
    pub(crate) fn end_round(&mut self, complete_ns: u64, take: &mut TakeFrames<'_>) -> u64 {
        let round = Round { complete_ns, ..std::mem::take(&mut self.next) };
        self.pending_bytes += std::mem::take(&mut self.next_bytes);
        let is_empty = round.copies.is_empty() && round.ended.is_empty() && round.maps.is_empty();
        let is_idle = is_empty && self.answered == self.sent;
        if is_idle {
            self.reached_ns = complete_ns;
        } else if self.requests.as_ref().is_some_and(|requests| requests.send(round).is_ok()) {
            self.sent += 1;
        }
        while let Ok(answer) = self.answers.try_recv() {
            self.accept(answer, take);
        }
        self.memo.tell(complete_ns);
        self.reached_ns = self.reached_ns.max(complete_ns.saturating_sub(MAX_DELAY_NS)).min(complete_ns);
        self.reached_ns
    }

    /// Waits until all copies are unwound, but not long.
    pub(crate) fn finish(&mut self, stop: &Stop, take: &mut TakeFrames<'_>) {
        let started = Instant::now();
        while self.answered < self.sent && !stop.is_urgent() && started.elapsed() < MAX_AT_END {
            match self.answers.recv_timeout(Duration::from_millis(10)) {
                Ok(answer) => self.accept(answer, take),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.requests = None;
        if self.answered == self.sent
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }

    fn accept(&mut self, answer: Answer, take: &mut TakeFrames<'_>) {
        let round = self.answered;
        self.answered += 1;
        self.pending_bytes -= answer.bytes;
        self.reached_ns = self.reached_ns.max(answer.complete_ns);
        for UnwoundStack { header, frames, used, changes, is_known } in answer.stacks {
            let found = take(&header, frames);
            self.memo.add(&header, used, Basis { round, changes, is_known }, found);
        }
    }
}

/// The state of the thread.
struct Worker {
    mappings: Mappings,
    /// The tables of modules; `None` if a module has none.
    tables: FxHashMap<usize, Option<Rc<UnwindTable>>>,
    /// Number of rows of the tables.
    rows: usize,
    /// Events wait for their stacks, and copies that wait take memory.
    real_time: RealTime,
}

impl Worker {
    fn new(stop: Stop, real_time: RealTime) -> Self {
        let mappings = Mappings::new(TargetFiles::until(stop));
        Self { mappings, tables: FxHashMap::default(), rows: 0, real_time }
    }

    fn unwind_all(&mut self, round: Round) -> Answer {
        for (pid, ts_ns) in round.ended {
            self.mappings.end_incarnation(pid, ts_ns);
        }
        round.maps.iter().for_each(|text| self.mappings.add(text));
        let mut bytes = 0;
        let mut stacks = Vec::with_capacity(round.copies.len());
        for (number, copy) in round.copies.into_iter().enumerate() {
            if number % COPIES_AT_ONCE == 0 {
                self.real_time.update();
            }
            bytes += copy.bytes.len();
            stacks.push(self.unwind(&copy));
        }
        Answer { stacks, bytes, complete_ns: round.complete_ns }
    }

    fn unwind(&mut self, copy: &UserStack) -> UnwoundStack {
        let header = copy.header;
        let WireUserStack { ip, sp, bp, ts_ns, incarnation: Incarnation { tgid, .. }, .. } = header;
        let (registers, stack) = (Registers { ip, sp, bp }, StackCopy { start: sp, bytes: &copy.bytes });
        let incarnation = self.mappings.incarnation_at(tgid, ts_ns.cast_signed());
        self.mappings.ensure_covered(incarnation, &[ip]);
        let mut is_known = true;
        let (frames, used) = walk::unwind(registers, stack, &copy.by_pointers, |address| {
            self.code(incarnation, address, &mut is_known)
        });
        UnwoundStack { header, frames, used, changes: self.mappings.changes(tgid), is_known }
    }

    /// Returns the knowledge about the code at an address of a process. Clears `is_known` if there may be
    /// more soon.
    fn code(&mut self, incarnation: symbols::Incarnation, address: u64, is_known: &mut bool) -> Code {
        let mut found = self.mappings.find(incarnation, address);
        if found.is_none() {
            self.mappings.ensure_covered(incarnation, &[address]);
            found = self.mappings.find(incarnation, address);
        }
        *is_known &= found.is_some();
        let Some((mapping, module)) = found.filter(|(mapping, _)| mapping.executable) else {
            return Code::Not;
        };
        let Some(module) = module else { return Code::Unknown };
        match self.table(module) {
            Some(table) => Code::Known(table.rule_at(address - mapping.start + mapping.offset)),
            None => {
                *is_known &= self.tables.contains_key(&module);
                Code::Unknown
            }
        }
    }

    fn table(&mut self, module: usize) -> Option<Rc<UnwindTable>> {
        if let Some(table) = self.tables.get(&module) {
            return table.clone();
        }
        // A file that could not be opened or read on behalf of one process may be on behalf of the next.
        let file = self.mappings.file_of(module)?;
        let table = self.mappings.files.unwind_table(file)?;
        if self.rows + table.rows() > MAX_TABLE_ROWS {
            self.tables.clear();
            self.rows = 0;
        }
        self.rows += table.rows();
        let table = Some(table).filter(|table| table.rows() > 0).map(Rc::new);
        self.tables.insert(module, table.clone());
        table
    }
}
