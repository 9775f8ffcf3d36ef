//! The symbols thread: adds mappings at once, and looks names up between requests, because the files of
//! mappings disappear with their process and names do not.

use std::{
    cell::OnceCell,
    collections::{VecDeque, hash_map::Entry},
    mem,
    rc::Rc,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use blazesym::symbolize::{Input, Symbolized, Symbolizer, source::Source};
use rustc_hash::FxHashMap;
use trace_format::{Frame, LockId, LockKind, SharedStack};

use super::{
    kernel::{self, Image, Kernel, ReadingKernel},
    mappings::Mappings,
    request::{
        FoundLock, Incarnation, MapsText, RawFrames, Request, Resolved, Shared, named, recording_frames,
    },
};
use crate::{
    compose::{remembered::Remembered, tasks::ProcessKey},
    kernel::peek::Peek,
    names::{
        files::{FileId, NamedCode, SymbolFrame, TargetFiles},
        kernel_addresses::KernelAddresses,
        kernel_locks::KernelLockNames,
    },
    setup::btf::TypeInfo,
    stop::Stop,
    system::priority::raise_priority,
};

/// Maximum number of kernel locks that are named at once in a round of the recording; others are queued.
const MAX_AT_ONCE: u32 = 500;
/// Maximum number of locks that wait for mappings which cover them.
const MAX_UNCOVERED: usize = 1 << 12;
/// Number of addresses whose names are remembered. Those of 100 bytes take 20 MB.
const MAX_NAMED: usize = 1 << 14;
/// Number of addresses whose functions are asked for together. A question to another process takes several
/// switches of tasks, each of which may wait for a processor.
const MAX_ASKED: usize = 1 << 10;

/// Time between two looks at the watermark while something waits for it.
const WATERMARK_INTERVAL: Duration = Duration::from_millis(20);

/// The module of code in anonymous memory, which a program made at run time.
const ANONYMOUS: &str = "[anon]";

/// The state of the thread.
pub(super) struct Worker {
    symbolizer: Symbolizer,
    kernel: Option<Kernel>,
    /// Looked for once.
    image: OnceCell<Option<Image>>,
    kernel_locks: Option<KernelLockNames<Peek>>,
    /// The form in which frames show their kernel addresses.
    kernel_addresses: KernelAddresses,
    mappings: Mappings,
    /// Look-ups that are not done yet.
    queue: VecDeque<Request>,
    /// Locks in memory that no mapping covers so far: the next mappings of their process may.
    uncovered: Vec<Request>,
    /// Processes whose mappings were announced, with their number.
    awaited: FxHashMap<u32, u32>,
    /// Number of kernel locks that were named at once since the last round of the recording, which is known
    /// by its watermark.
    named_at_once: u32,
    round_ns: i64,
    /// All requests about times up to this one are served.
    watermark_ns: i64,
    frames: Remembered<FrameKey, NamedFrames, MAX_NAMED>,
    /// The code at the addresses of the next look-ups in the queue, and the number of these look-ups.
    functions: FxHashMap<FrameKey, NamedCode>,
    batch: usize,
    /// Stacks and locks that were not sent yet, stacks by id: look-ups are done in the order in which they
    /// were requested.
    stacks: Vec<SharedStack>,
    locks: Vec<FoundLock>,
    /// Number of stacks and locks that were sent already.
    sent: usize,
    /// Number of stacks and locks that were not looked up, because too many were queued.
    unnamed: u64,
    stop: Stop,
    shared: Arc<Shared>,
}

/// The process of an address, the address, and whether it is a return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameKey(Option<ProcessKey>, u64, bool);

/// The frames of an address, leaf first: several if functions were inlined there.
#[derive(Clone)]
struct NamedFrames {
    frames: Arc<[Frame]>,
    /// The same as guesses, once there was such a stack.
    guesses: Rc<OnceCell<Arc<[Frame]>>>,
    /// Whether its code keeps a frame pointer, which leads to the caller.
    keeps_frame_pointer: bool,
}

impl NamedFrames {
    fn new(frames: Vec<Frame>, keeps_frame_pointer: bool) -> Self {
        Self { frames: frames.into(), guesses: Rc::default(), keeps_frame_pointer }
    }

    /// An address of which no more is known.
    fn bare(frame: Frame) -> Self {
        Self::new(vec![frame], false)
    }

    /// Returns the frames of the address where it is a guess.
    fn guesses(&self) -> Arc<[Frame]> {
        let guess = |frame: &Frame| Frame { guessed: true, ..frame.clone() };
        Arc::clone(self.guesses.get_or_init(|| self.frames.iter().map(guess).collect()))
    }
}

impl Worker {
    pub(super) fn new(
        memory: Option<(Peek, TypeInfo)>,
        kernel_addresses: KernelAddresses,
        kernel: Option<ReadingKernel>,
        stop: Stop,
        shared: Arc<Shared>,
    ) -> Self {
        // Needed now for kernel locks: the first ones come with the first events, and may be freed soon.
        let kernel = kernel.and_then(ReadingKernel::finish).or_else(|| memory.is_some().then(Kernel::read));
        let find = |name: &str| kernel.as_ref().and_then(|kernel| kernel.address(name));
        let kernel_locks = memory.map(|(peek, types)| KernelLockNames::find(peek, types, find));
        Self {
            symbolizer: Symbolizer::builder().enable_auto_reload(false).enable_demangling(false).build(),
            kernel,
            image: OnceCell::new(),
            kernel_locks,
            kernel_addresses,
            mappings: Mappings::new(TargetFiles::until(stop.clone())),
            queue: VecDeque::new(),
            uncovered: Vec::new(),
            awaited: FxHashMap::default(),
            named_at_once: 0,
            round_ns: 0,
            watermark_ns: 0,
            frames: Remembered::default(),
            functions: FxHashMap::default(),
            batch: 0,
            stacks: Vec::new(),
            locks: Vec::new(),
            sent: 0,
            unnamed: 0,
            stop,
            shared,
        }
    }

    /// Serves requests until the last one, and returns all stacks and names.
    pub(super) fn run(mut self, inbox: &Receiver<Request>) -> Resolved {
        self.mappings.files.start();
        let mut finishing = false;
        while !finishing {
            let received = if self.queue.is_empty() {
                inbox.recv().map_err(RecvTimeoutError::from)
            } else {
                inbox.recv_timeout(WATERMARK_INTERVAL)
            };
            let mut watermark_ns = self.next_watermark();
            match received {
                Ok(request) => finishing = self.serve(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => finishing = true,
            }
            loop {
                while let Ok(request) = inbox.try_recv() {
                    finishing |= self.serve(request);
                }
                self.watermark_ns = self.watermark_ns.max(watermark_ns);
                let has_more = self.look_up_next();
                let found = self.sent + self.stacks.len() + self.locks.len();
                self.shared.found.store(found as u64, Ordering::Relaxed);
                if !has_more {
                    break;
                }
                watermark_ns = self.next_watermark();
            }
        }
        self.watermark_ns = i64::MAX;
        while self.look_up_next() {}
        // They end while the rest of the trace is written.
        self.mappings.files.stop_helpers();
        let warning = self.mappings.files.describe_failures();
        let unnamed = self.unnamed + self.shared.unsent.load(Ordering::Relaxed);
        Resolved { stacks: self.stacks, locks: self.locks, unnamed, warning }
    }

    /// Returns a time such that all requests about times up to it are in the inbox.
    fn next_watermark(&mut self) -> i64 {
        let watermark_ns = self.shared.watermark_ns.load(Ordering::Acquire);
        if watermark_ns != self.round_ns {
            (self.round_ns, self.named_at_once) = (watermark_ns, 0);
        }
        watermark_ns
    }

    /// Serves a request at once, or queues it. Returns whether it was the last one.
    fn serve(&mut self, request: Request) -> bool {
        match request {
            Request::AwaitMappings { pid } => *self.awaited.entry(pid).or_default() += 1,
            Request::AwaitedMappings(unparsed) => {
                let text = &unparsed.text;
                if let Entry::Occupied(mut awaited) = self.awaited.entry(text.owner.pid) {
                    *awaited.get_mut() -= 1;
                    if *awaited.get() == 0 {
                        awaited.remove();
                    }
                }
                self.add_mappings(text);
            }
            Request::Mappings(text) => self.add_mappings(&text),
            Request::IncarnationEnded { pid, ts_ns } => self.mappings.end_incarnation(pid, ts_ns),
            Request::Barrier(done) => {
                self.read_queued_mappings();
                let _ = done.send(());
            }
            Request::Results(answer) => {
                self.sent += self.stacks.len() + self.locks.len();
                let (stacks, locks) = (mem::take(&mut self.stacks), mem::take(&mut self.locks));
                let _ = answer.send(Resolved { stacks, locks, ..Resolved::default() });
            }
            Request::RaisePriority => raise_priority(),
            Request::Finish => return true,
            Request::Stack(id, frames) => {
                if let Some(incarnation) = frames.incarnation {
                    self.mappings.ensure_covered(incarnation, &frames.user);
                }
                self.queue.push_back(Request::Stack(id, frames));
            }
            Request::Lock { lock, incarnation, address } => {
                self.mappings.ensure_covered(incarnation, &[address]);
                self.queue.push_back(Request::Lock { lock, incarnation, address });
            }
            // A lock in a kernel object disappears like a mapping, and naming it takes microseconds. A flood
            // of them must not delay the reading of mappings.
            Request::KernelLock { lock, address, kind } if self.named_at_once < MAX_AT_ONCE => {
                self.named_at_once += 1;
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                self.name_kernel_lock(lock, address, kind);
            }
            request @ Request::KernelLock { .. } => self.queue.push_back(request),
        }
        false
    }

    /// Adds mappings, and queues the locks of their process again that none covered before.
    fn add_mappings(&mut self, text: &MapsText) {
        self.mappings.add(text);
        let is_of = |request: &mut Request| {
            incarnation_of(request).is_some_and(|incarnation| incarnation.pid == text.owner.pid)
        };
        self.queue.extend(self.uncovered.extract_if(.., is_of));
    }

    /// Reads the mappings of every process with queued look-ups once more.
    fn read_queued_mappings(&mut self) {
        self.queue.extend(self.uncovered.drain(..));
        let mut pids: Vec<u32> =
            self.queue.iter().filter_map(incarnation_of).map(|incarnation| incarnation.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            self.mappings.read(pid);
        }
    }

    /// Does the first look-up in the queue, if it is ready. Returns whether there was one.
    fn look_up_next(&mut self) -> bool {
        let Some(next) = self.queue.front() else { return false };
        let is_blocked = !self.is_ready(next);
        // A process whose mappings cannot be read for long must not keep others from their names.
        if is_blocked && self.shared.has_room() {
            return false;
        }
        let is_dropped = is_blocked || self.stop.is_urgent();
        if !is_dropped && self.batch == 0 {
            self.look_up_functions();
        }
        self.batch = self.batch.saturating_sub(1);
        let next = self.queue.pop_front();
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        if is_dropped {
            self.unnamed += u64::from(is_blocked);
            // The checkpoints have the addresses of a stack.
            return true;
        }
        match next {
            Some(Request::Stack(id, frames)) => {
                let frames = self.stack(&frames);
                self.stacks.push(SharedStack { id, frames });
                self.shared.named.fetch_add(1, Ordering::Relaxed);
            }
            Some(request @ Request::Lock { lock, incarnation, address }) => {
                let mapping = self.mappings.find(incarnation, address);
                if mapping.is_none() && self.uncovered.len() < MAX_UNCOVERED {
                    self.shared.waiting.fetch_add(1, Ordering::Relaxed);
                    self.uncovered.push(request);
                }
                let shared = mapping.and_then(|(mapping, _)| mapping.shared_place(address));
                let name = self.mappings.variable(incarnation, address);
                self.found(FoundLock { lock, name, shared });
            }
            Some(Request::KernelLock { lock, address, kind }) => self.name_kernel_lock(lock, address, kind),
            _ => {}
        }
        true
    }

    /// Returns whether the mappings that a look-up uses are read, and all records up to their time are
    /// drained.
    fn is_ready(&self, request: &Request) -> bool {
        let Some(Incarnation { pid, .. }) = incarnation_of(request) else { return true };
        !self.awaited.contains_key(&pid)
            && self.mappings.latest_ns(pid).is_none_or(|taken_ns| taken_ns <= self.watermark_ns)
    }

    /// Looks up the functions at the user addresses of the next stacks together.
    fn look_up_functions(&mut self) {
        let mut wanted: FxHashMap<FrameKey, (FileId, u64)> = FxHashMap::default();
        let mut batch = 0;
        for request in self.queue.iter().take_while(|request| self.is_ready(request)) {
            if wanted.len() >= MAX_ASKED {
                break;
            }
            batch += 1;
            let Request::Stack(_, raw) = request else { continue };
            let Some(incarnation) = raw.incarnation else { continue };
            for (depth, &address) in raw.user.iter().enumerate() {
                let returns = depth > 0 || raw.user_returns;
                let key = FrameKey(Some(incarnation.process), address, returns);
                if !self.frames.contains(&key)
                    && !wanted.contains_key(&key)
                    && let Some((mapping, module)) = self.mappings.find_code(incarnation, address)
                    && let Some(file) = module.and_then(|module| self.mappings.file_of(module))
                {
                    let offset = address - mapping.start + mapping.offset;
                    wanted.insert(key, (file, offset.wrapping_sub(u64::from(returns))));
                }
            }
        }
        self.batch = batch;
        let (keys, of): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        self.functions = keys.into_iter().zip(self.mappings.files.symbols(&of)).collect();
    }

    fn name_kernel_lock(&mut self, lock: LockId, address: u64, kind: LockKind) {
        let name = self.kernel().variable(address);
        let name = name.or_else(|| self.kernel_locks.as_mut()?.name(address, kind));
        let name = name.or_else(|| self.kernel().static_memory(address));
        self.found(FoundLock { lock, name, shared: None });
    }

    fn found(&mut self, lock: FoundLock) {
        self.locks.extend((lock.name.is_some() || lock.shared.is_some()).then_some(lock));
    }

    fn stack(&mut self, raw: &RawFrames) -> Vec<Arc<[Frame]>> {
        let mut frames = Vec::with_capacity(raw.kernel.len() + raw.user.len());
        for (depth, &address) in raw.kernel.iter().enumerate() {
            frames.push(self.frame(None, address, depth > 0).frames);
        }
        frames.drain(..recording_frames(&frames));
        let mut follows = false;
        for (depth, &address) in raw.user.iter().enumerate() {
            let named = self.frame(raw.incarnation, address, depth > 0 || raw.user_returns);
            let is_certain = raw.certain.contains(depth, follows);
            follows = is_certain && named.keeps_frame_pointer;
            frames.push(if is_certain { named.frames } else { named.guesses() });
        }
        frames
    }

    fn frame(&mut self, incarnation: Option<Incarnation>, address: u64, returns: bool) -> NamedFrames {
        let key = FrameKey(incarnation.map(|incarnation| incarnation.process), address, returns);
        if let Some(named) = self.frames.get(&key) {
            return named;
        }
        // A return address is the address of the instruction after the call, which may belong to another line
        // or even to another function. The call is before it.
        let before = u64::from(returns);
        let named = match incarnation {
            Some(incarnation) => self.user_frame(incarnation, address, before),
            None => NamedFrames::new(self.kernel_frame(address, before), true),
        };
        // An address without a mapping may get one later.
        if named.frames.iter().any(|frame| frame.module.is_some()) {
            self.frames.insert(key, named.clone());
        }
        named
    }

    fn kernel_frame(&mut self, address: u64, before: u64) -> Vec<Frame> {
        let shown = self.kernel_addresses.shown(address);
        let mut bare = Frame { address: Some(shown), kernel: true, ..Frame::default() };
        if let Some(location) = self.kernel().locate(address) {
            bare.module = Some(location.module);
            bare.build_id = location.build_id.map(str::to_owned);
            bare.offset = Some(location.offset);
        }
        let address = address.wrapping_sub(before);
        let name = |source: &Source<'_>, at| match self.symbolizer.symbolize_single(source, at) {
            Ok(Symbolized::Sym(symbol)) => Some(named(&bare, SymbolFrame::all_of(&symbol), before)),
            _ => None,
        };
        let is_image = bare.module.as_deref() == Some("[kernel]");
        let image = || self.image.get_or_init(|| self.kernel.as_ref()?.installed_image()).as_ref();
        let of_image = is_image
            .then(image)
            .flatten()
            .and_then(|image| name(&image.source, Input::VirtOffset(address.wrapping_sub(image.shift))));
        of_image.or_else(|| name(&kernel::functions(), Input::AbsAddr(address))).unwrap_or(vec![bare])
    }

    fn user_frame(&mut self, incarnation: Incarnation, address: u64, before: u64) -> NamedFrames {
        let mut bare = Frame { address: Some(address), ..Frame::default() };
        let Some((mapping, module)) = self.mappings.find_code(incarnation, address) else {
            return NamedFrames::bare(bare);
        };
        bare.module =
            Some(if mapping.path.is_empty() { ANONYMOUS.to_owned() } else { mapping.path.to_string() });
        let Some((module, files)) = module.map(|index| self.mappings.module(index)) else {
            return NamedFrames::bare(bare);
        };
        bare.module = Some(module.path.to_string());
        bare.build_id = module.build_id(files);
        let offset = address - mapping.start + mapping.offset;
        bare.offset = Some(offset);
        let key = FrameKey(Some(incarnation.process), address, before > 0);
        let code = self.functions.remove(&key).or_else(|| {
            let found = files.symbols(&[(module.file?, offset.wrapping_sub(before))]);
            found.into_iter().next()
        });
        let NamedCode { functions, keeps_frame_pointer } = code.unwrap_or_default();
        NamedFrames::new(named(&bare, functions, before), keeps_frame_pointer)
    }

    fn kernel(&mut self) -> &Kernel {
        self.kernel.get_or_insert_with(Kernel::read)
    }
}

/// Returns the incarnation that a look-up needs.
fn incarnation_of(request: &Request) -> Option<Incarnation> {
    match request {
        Request::Stack(_, frames) => frames.incarnation,
        Request::Lock { incarnation, .. } => Some(*incarnation),
        _ => None,
    }
}
