//! The thread's own side: orders in, frames and names out. It reads mappings when it is told of a process, and looks names
//! up between any two orders, because mappings vanish with their process and names don't.

use std::{
    collections::VecDeque,
    fs,
    rc::Rc,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use blazesym::symbolize::{
    Input, Sym, Symbolized, Symbolizer,
    source::{Elf, Kernel as KernelSource, Source},
};
use rustc_hash::FxHashMap;
use trace_format::{Frame, LockId, LockKind, Stack, StackId};

use super::{
    Order, Owner, RawFrames, Resolved, kernel,
    maps::{self, Mapping},
    modules::Module,
};
use crate::{clocks, names::Names, peek::Peek, tasks::ProcessKey};

/// Mappings of a process, at one moment.
struct Snapshot {
    taken_ns: i64,
    mappings: Vec<(Mapping, Option<usize>)>,
}

pub(super) struct Worker {
    symbolizer: Symbolizer,
    kernel: Option<kernel::Kernel>,
    kernel_names: Option<Names<Peek>>,
    modules: Vec<Module>,
    by_file: FxHashMap<(u64, String), usize>,
    processes: FxHashMap<u32, Process>,
    waiting: VecDeque<Order>,
    /// Kernel locks that were looked at since the last round.
    looked_at: u32,
    watermark_ns: i64,
    frames: FxHashMap<FrameKey, Rc<[Frame]>>,
    stacks: Vec<(StackId, Vec<Rc<[Frame]>>)>,
    names: Vec<(LockId, String)>,
    /// How many of both were told already.
    told: (usize, usize),
}

#[derive(Default)]
struct Process {
    snapshots: Vec<Snapshot>,
    ends_ns: Vec<i64>,
    tried: Option<Instant>,
    /// How long to wait after the last try.
    patience: Duration,
}

/// Whose address, the address, and whether it is one to return to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameKey(Option<ProcessKey>, u64, bool);

/// A process whose mappings do not explain an address is asked again after this time at first.
const LEAST_PATIENCE: Duration = Duration::from_millis(2);
/// And at least this often.
const MOST_PATIENCE: Duration = Duration::from_millis(250);
/// Kernel locks that are looked at as soon as they are seen, in a round of the recording; more wait for their turn.
const MOST_AT_ONCE: u32 = 500;
/// Snapshots kept per PID.
const MOST_SNAPSHOTS: usize = 16;

impl Worker {
    pub(super) fn new(peek: Option<Peek>) -> Self {
        // Now, because the first locks come with the first events, and may be gone soon after.
        let kernel = peek.is_some().then(kernel::Kernel::read);
        let find = |name: &str| kernel.as_ref().and_then(|kernel| kernel.address(name));
        let kernel_names = peek.and_then(|peek| Names::find(peek, find));
        Self {
            symbolizer: Symbolizer::builder().enable_auto_reload(false).build(),
            kernel,
            kernel_names,
            modules: Vec::new(),
            by_file: FxHashMap::default(),
            processes: FxHashMap::default(),
            waiting: VecDeque::new(),
            looked_at: 0,
            watermark_ns: 0,
            frames: FxHashMap::default(),
            stacks: Vec::new(),
            names: Vec::new(),
            told: (0, 0),
        }
    }

    pub(super) fn run(mut self, inbox: &Receiver<Order>) -> Resolved {
        let mut finishing = false;
        while !finishing {
            match inbox.recv_timeout(Duration::from_millis(100)) {
                Ok(order) => finishing = self.take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => finishing = true,
            }
            // Mappings vanish with their process, names don't: look at the inbox between any two look-ups.
            loop {
                while let Ok(order) = inbox.try_recv() {
                    finishing |= self.take(order);
                }
                if !self.look_one_up() {
                    break;
                }
            }
        }
        self.watermark_ns = i64::MAX;
        while self.look_one_up() {}
        self.resolved()
    }

    /// Does what is urgent and queues the rest. Returns whether to finish.
    fn take(&mut self, order: Order) -> bool {
        match order {
            Order::See { pid } => {
                if self.processes.get(&pid).is_none_or(|process| process.tried.is_none()) {
                    self.snapshot(pid);
                }
            }
            Order::Seen { pid, taken_ns, text } => self.keep(pid, taken_ns, &text),
            Order::Ended { pid, ts_ns } => {
                let process = self.processes.entry(pid).or_default();
                process.ends_ns.push(ts_ns);
                process.tried = None;
                process.patience = Duration::ZERO;
            }
            Order::Round { watermark_ns } => {
                self.watermark_ns = self.watermark_ns.max(watermark_ns);
                self.looked_at = 0;
            }
            Order::Barrier(done) => {
                self.see_all_again();
                let _ = done.send(());
            }
            Order::Tell(to) => {
                let (stacks, names) = self.told;
                let new =
                    self.stacks[stacks..].iter().map(|(id, frames)| Stack { id: *id, frames: flat(frames) });
                let found = Resolved { stacks: new.collect(), names: self.names[names..].to_vec() };
                self.told = (self.stacks.len(), self.names.len());
                let _ = to.send(found);
            }
            Order::Finish => return true,
            Order::Stack(id, frames) => {
                if let Some(owner) = frames.owner {
                    self.see_where(owner, &frames.user);
                }
                self.waiting.push_back(Order::Stack(id, frames));
            }
            Order::Name { lock, owner, address } => {
                self.see_where(owner, &[address]);
                self.waiting.push_back(Order::Name { lock, owner, address });
            }
            // A lock in an object of the kernel vanishes like a mapping, and looking at it takes microseconds; a flood of
            // them must not keep mappings from being read.
            Order::KernelName { lock, address, kind } if self.looked_at < MOST_AT_ONCE => {
                self.looked_at += 1;
                self.name_in_kernel(lock, address, kind);
            }
            order @ Order::KernelName { .. } => self.waiting.push_back(order),
        }
        false
    }

    /// A process maps files while it runs, most of them in its first milliseconds. So if an address is in no mapping
    /// that is known, the process is asked again; less and less often if that does not help, because stacks of code
    /// without frame pointers hold numbers that are no addresses.
    fn see_where(&mut self, owner: Owner, addresses: &[u64]) {
        if addresses.iter().all(|&address| self.known_mapping(owner, address).is_some()) {
            return;
        }
        let process = self.processes.entry(owner.pid).or_default();
        let due = process.tried.is_none_or(|tried| tried.elapsed() >= process.patience);
        if !due || process.end_of(owner) < i64::MAX {
            return;
        }
        self.snapshot(owner.pid);
        let helped = addresses.iter().all(|&address| self.known_mapping(owner, address).is_some());
        let process = self.processes.entry(owner.pid).or_default();
        process.patience =
            if helped { Duration::ZERO } else { (process.patience * 2).clamp(LEAST_PATIENCE, MOST_PATIENCE) };
    }

    /// The last look at every process of which something is still to be looked up.
    fn see_all_again(&mut self) {
        let owner = |order: &Order| match order {
            Order::Stack(_, frames) => frames.owner,
            Order::Name { owner, .. } => Some(*owner),
            _ => None,
        };
        let mut pids: Vec<u32> = self.waiting.iter().filter_map(owner).map(|owner| owner.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            self.snapshot(pid);
        }
    }

    /// Looks up what stands first in the queue, if it is ready. Returns whether there was something to do.
    fn look_one_up(&mut self) -> bool {
        let owner = match self.waiting.front() {
            Some(Order::Stack(_, frames)) => frames.owner,
            Some(Order::Name { owner, .. }) => Some(*owner),
            Some(_) => None,
            None => return false,
        };
        if let Some(owner) = owner {
            let newest = self.processes.get(&owner.pid).and_then(|process| process.snapshots.last());
            if newest.is_some_and(|snapshot| snapshot.taken_ns > self.watermark_ns) {
                return false;
            }
        }
        match self.waiting.pop_front() {
            Some(Order::Stack(id, frames)) => {
                let frames = self.stack(&frames);
                self.stacks.push((id, frames));
            }
            Some(Order::Name { lock, owner, address }) => {
                let name = self.variable(owner, address);
                self.names.extend(name.map(|name| (lock, name)));
            }
            Some(Order::KernelName { lock, address, kind }) => self.name_in_kernel(lock, address, kind),
            _ => {}
        }
        true
    }

    fn name_in_kernel(&mut self, lock: LockId, address: u64, kind: LockKind) {
        let name = self.kernel().variable(address);
        let name = name.or_else(|| self.kernel_names.as_mut()?.name(address, kind));
        let name = name.or_else(|| self.kernel().static_memory(address));
        self.names.extend(name.map(|name| (lock, name)));
    }

    fn stack(&mut self, raw: &RawFrames) -> Vec<Rc<[Frame]>> {
        let mut frames = Vec::with_capacity(raw.kernel.len() + raw.user.len());
        for (depth, &address) in raw.kernel.iter().enumerate() {
            frames.push(self.frame(None, address, depth > 0));
        }
        frames.drain(..own_frames(&frames));
        for (depth, &address) in raw.user.iter().enumerate() {
            frames.push(self.frame(raw.owner, address, depth > 0 || raw.user_returns));
        }
        frames
    }

    /// One address as one frame, or more where functions were inlined: leaf first.
    fn frame(&mut self, owner: Option<Owner>, address: u64, returns: bool) -> Rc<[Frame]> {
        let key = FrameKey(owner.map(|owner| owner.process), address, returns);
        if let Some(frames) = self.frames.get(&key) {
            return Rc::clone(frames);
        }
        // An address to return to is that of the instruction after the call, which may belong to another line, or
        // even to another function: the call lies before it.
        let before = u64::from(returns);
        let frames: Rc<[Frame]> = match owner {
            Some(owner) => self.user_frame(owner, address, before),
            None => self.kernel_frame(address, before),
        }
        .into();
        // What is in no mapping may be in one that is read later.
        if frames.iter().any(|frame| frame.module.is_some()) {
            self.frames.insert(key, Rc::clone(&frames));
        }
        frames
    }

    fn kernel_frame(&mut self, address: u64, before: u64) -> Vec<Frame> {
        let mut bare = Frame { address: Some(address), kernel: true, ..Frame::default() };
        if let Some(place) = self.kernel().place(address) {
            bare.module = Some(place.module);
            bare.build_id = place.build_id.map(str::to_owned);
            bare.offset = Some(place.offset);
        }
        let source = Source::Kernel(KernelSource::default());
        match self.symbolizer.symbolize_single(&source, Input::AbsAddr(address.wrapping_sub(before))) {
            Ok(Symbolized::Sym(symbol)) => named(&bare, &symbol, before),
            _ => vec![bare],
        }
    }

    fn user_frame(&mut self, owner: Owner, address: u64, before: u64) -> Vec<Frame> {
        let mut bare = Frame { address: Some(address), ..Frame::default() };
        let Some((mapping, module)) = self.known_mapping(owner, address) else { return vec![bare] };
        if !mapping.path.is_empty() {
            bare.module = Some(mapping.path.clone());
        }
        let Some(module) = module.map(|index| &mut self.modules[index]) else { return vec![bare] };
        bare.module = Some(module.path.clone());
        bare.build_id = module.build_id();
        let offset = address - mapping.start + mapping.offset;
        bare.offset = Some(offset);
        let Some(path) = &module.readable else { return vec![bare] };
        let source = Source::Elf(Elf::new(path));
        match self.symbolizer.symbolize_single(&source, Input::FileOffset(offset.wrapping_sub(before))) {
            Ok(Symbolized::Sym(symbol)) => named(&bare, &symbol, before),
            _ => vec![bare],
        }
    }

    /// The variable of the process at an address.
    fn variable(&mut self, owner: Owner, address: u64) -> Option<String> {
        // Zero-initialised variables lie in memory that is no longer mapped from the file, right behind it: so each
        // file that is mapped is asked for the whole of its extent, from the mapping of its beginning.
        let process = self.processes.get(&owner.pid)?;
        for snapshot in process.valid(owner) {
            let mut last = None;
            for (mapping, module) in &snapshot.mappings {
                let (Some(module), true) = (*module, mapping.start <= address) else { continue };
                if last != Some(module) && self.modules[module].covers(mapping, address) {
                    let module = &mut self.modules[module];
                    return module.variable(mapping, address).or_else(|| module.place(mapping, address));
                }
                last = Some(module);
            }
        }
        None
    }

    /// The mapping of an incarnation that covers an address, from the latest snapshot that has one.
    fn known_mapping(&self, owner: Owner, address: u64) -> Option<(Mapping, Option<usize>)> {
        let process = self.processes.get(&owner.pid)?;
        process.valid(owner).find_map(|snapshot| {
            let next = snapshot.mappings.partition_point(|(mapping, _)| mapping.start <= address);
            let found = snapshot.mappings.get(next.checked_sub(1)?)?;
            found.0.covers(address).then(|| found.clone())
        })
    }

    fn snapshot(&mut self, pid: u32) {
        let taken_ns = clocks::monotonic_ns();
        let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.keep(pid, taken_ns, &text);
    }

    /// Keeps the mappings of a process as they were at that time.
    fn keep(&mut self, pid: u32, taken_ns: i64, text: &[u8]) {
        let mappings: Vec<_> = maps::parse(&String::from_utf8_lossy(text))
            .into_iter()
            .map(|mapping| {
                let module = (mapping.inode != 0).then(|| {
                    let Self { by_file, modules, .. } = self;
                    *by_file.entry((mapping.inode, mapping.path.clone())).or_insert_with(|| {
                        modules.push(Module::find(pid, &mapping));
                        modules.len() - 1
                    })
                });
                (mapping, module)
            })
            .collect();
        let process = self.processes.entry(pid).or_default();
        process.tried = Some(Instant::now());
        let same = process.snapshots.last().is_some_and(|last| {
            last.mappings == mappings && process.ends_ns.iter().all(|&end| end <= last.taken_ns)
        });
        if !mappings.is_empty() && !same {
            if process.snapshots.len() >= MOST_SNAPSHOTS {
                process.snapshots.remove(1);
            }
            process.snapshots.push(Snapshot { taken_ns, mappings });
        }
    }

    fn kernel(&mut self) -> &kernel::Kernel {
        self.kernel.get_or_insert_with(kernel::Kernel::read)
    }

    fn resolved(mut self) -> Resolved {
        self.stacks.sort_by_key(|(id, _)| *id);
        let stacks =
            self.stacks.into_iter().map(|(id, frames)| Stack { id, frames: flat(&frames) }).collect();
        Resolved { stacks, names: self.names }
    }
}

fn flat(frames: &[Rc<[Frame]>]) -> Vec<Frame> {
    frames.iter().flat_map(|frames| frames.iter().cloned()).collect()
}

impl Process {
    /// Snapshots from the life of an incarnation, the latest first.
    fn valid(&self, owner: Owner) -> impl Iterator<Item = &Snapshot> {
        let end = self.end_of(owner);
        let life = move |s: &&Snapshot| owner.since_ns <= s.taken_ns && s.taken_ns < end;
        self.snapshots.iter().rev().filter(life)
    }

    fn end_of(&self, owner: Owner) -> i64 {
        self.ends_ns.iter().copied().filter(|&end| end > owner.since_ns).min().unwrap_or(i64::MAX)
    }
}

/// How many frames at the leaf belong to the recording itself: the kernel's way from a tracepoint to our program.
pub(super) fn own_frames(frames: &[Rc<[Frame]>]) -> usize {
    const OURS: [&str; 8] = [
        "bpf_prog_",
        "bpf_trace_run",
        "__bpf_trace_",
        "__traceiter_",
        "trace_call_bpf",
        "perf_syscall_",
        "syscall_trace_enter",
        "syscall_exit_work",
    ];
    let ours = |frame: &Rc<[Frame]>| {
        let symbol = frame.last().and_then(|frame| frame.symbol.as_deref());
        symbol.is_some_and(|symbol| OURS.iter().any(|begin| symbol.starts_with(begin)))
    };
    // Our program has no name any more once it is unloaded: what matters is the last of the known ones.
    let near = frames.len().min(8);
    frames[..near].iter().rposition(ours).map_or(0, |last| last + 1)
}

/// The frames that a symbol stands for: the functions that were inlined at the address, innermost first, and last the
/// function that they were inlined into.
fn named(bare: &Frame, symbol: &Sym<'_>, before: u64) -> Vec<Frame> {
    let mut frames = Vec::with_capacity(1 + symbol.inlined.len());
    for function in symbol.inlined.iter().rev() {
        frames.push(Frame {
            symbol: Some(function.name.to_string()),
            file: function.code_info.as_ref().map(|code| code.to_path().to_string_lossy().into_owned()),
            line: function.code_info.as_ref().and_then(|code| code.line).map(|line| line as i32),
            inlined: true,
            ..bare.clone()
        });
    }
    frames.push(Frame {
        symbol: Some(symbol.name.to_string()),
        symbol_offset: Some(symbol.offset as u64 + before),
        file: symbol.code_info.as_ref().map(|code| code.to_path().to_string_lossy().into_owned()),
        line: symbol.code_info.as_ref().and_then(|code| code.line).map(|line| line as i32),
        ..bare.clone()
    });
    frames
}
