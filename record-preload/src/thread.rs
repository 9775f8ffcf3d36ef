//! The recording state of a thread: its slot in the region, its writer, and its stack table. A thread starts a session at its first
//! call and ends it at its exit. All functions but [`Thread::is_recording`] run once per session or rarely.

use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

use trace_format::preload::{MAX_FRAMES, Payload, Record, Region, op};

use crate::{
    bounds::{self, Bounds},
    clock, exec,
    process::{self, Connection},
    restrictions,
    slot::{self, Facts},
    sys,
    table::{self, Table},
    walk::{Caller, Window, is_same, walk},
    writer::Writer,
};

/// The block of a thread in thread-local storage. All zeros is a thread that has not called anything yet.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// One of [`state`], or the stack pointer of a call that is writing a record.
    state: usize,
    generation: u32,
    pub(crate) clock: u32,
    generation_counter: *const AtomicU32,
    /// The region's `active` field.
    active: *const AtomicU32,
    pub(crate) writer: Writer,
    stacks: *mut Table,
    stack: Bounds,
    max_frames: u32,
    /// Thread id in its own PID namespace.
    pub(crate) tid: u32,
    /// Number of finished destructor rounds at its exit.
    rounds: u32,
    /// Value of [`RENAMES`] when its name was last written.
    renames: u32,
    region: *mut Region,
    /// Number of calls without a session.
    unrecorded_calls: u64,
}

/// States of a thread.
mod state {
    /// No call yet.
    pub(super) const NEW: usize = 0;
    /// Calls are recorded.
    pub(super) const RECORDING: usize = 1;
    /// Calls are never recorded.
    pub(super) const OFF: usize = 2;
    /// The session is being started; calls are not recorded.
    pub(super) const STARTING: usize = 3;
    /// No slot was available.
    pub(super) const UNRECORDED: usize = 4;
    /// The session has ended, and the thread is about to exit.
    pub(super) const EXITED: usize = 5;
    /// The process has restricted itself: calls are never recorded, but counted.
    pub(super) const EXCLUDED: usize = 6;
}

/// Rounds of destructors at a thread's exit (PTHREAD_DESTRUCTOR_ITERATIONS). The thread records until the last one.
const ROUNDS: u32 = 4;
/// A thread without a session tries to start one every this many calls.
const RETRY_CALLS: u64 = 256;

/// Number of renames of threads of this process. A thread that renames another one cannot write the other's records, so each
/// thread checks this counter from time to time.
static RENAMES: AtomicU32 = AtomicU32::new(0);

// Thread-local storage of the block. Of std's two mechanisms, one needs a function call and the other is not stable. Programs
// cannot dlclose this library, so the initial-exec model works.
core::arch::global_asm!(
    ".pushsection .tbss.klock_thread,\"awT\",@nobits",
    ".balign 64",
    ".hidden klock_thread",
    ".globl klock_thread",
    ".type klock_thread, %object",
    ".size klock_thread, {bytes}",
    "klock_thread:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<Thread>(),
);

/// Returns the block of the current thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn current() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the offset that the loader wrote, and the thread pointer.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + klock_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            options(nostack, pure, nomem)
        );
    }
    block
}

/// Returns the block of the current thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn current() -> *mut Thread {
    let block: *mut Thread;
    // SAFETY: reads the offset that the loader wrote, and the thread pointer.
    unsafe {
        core::arch::asm!(
            "adrp {0}, :gottprel:klock_thread",
            "ldr {0}, [{0}, :gottprel_lo12:klock_thread]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) block,
            out(reg) _,
            options(nostack, pure, nomem, preserves_flags)
        );
    }
    block
}

impl Thread {
    /// Whether calls of this thread are recorded now.
    #[inline(always)]
    pub(crate) unsafe fn is_recording(&self) -> bool {
        // SAFETY: both pointers are mapped in this state. In a child process, the generation check fails before `active` is
        // read.
        unsafe {
            self.state == state::RECORDING
                && process::is_current(self.generation_counter, self.generation)
                && (*self.active).load(Ordering::Relaxed) != 0
        }
    }

    /// Starts writing records, by a call at `stack_pointer`. Until [`Thread::end_writing`], signal handlers cannot record.
    #[inline(always)]
    pub(crate) unsafe fn begin_writing(&mut self, stack_pointer: usize) {
        self.state = stack_pointer;
        // SAFETY: the thread was recording.
        unsafe { self.writer.set_busy() };
    }

    /// Ends writing records.
    #[inline(always)]
    pub(crate) unsafe fn end_writing(&mut self) {
        // SAFETY: the thread was recording.
        unsafe { self.writer.set_idle() };
        compiler_fence(Ordering::SeqCst);
        self.state = state::RECORDING;
    }

    /// Returns the number of the caller's stack, and writes the stack if it is new; 0 if there is no room for it.
    #[inline(always)]
    pub(crate) unsafe fn stack_number(
        &mut self,
        caller: Caller,
        stack_pointer: usize,
        time: impl FnOnce() -> u64,
    ) -> u16 {
        if self.stacks.is_null() {
            return 0;
        }
        let is_inside = stack_pointer >= self.stack.low && stack_pointer < self.stack.high;
        let window = Window { low: stack_pointer, high: if is_inside { self.stack.high } else { 0 } };
        // A frame pointer that no walk follows is any value, a new one for each call: it does not tell stacks apart.
        let by_frame =
            if window.has_frame(caller.frame_pointer) { Table::mix(caller.frame_pointer) } else { 0 };
        let entry = Table::mix(caller.return_address) ^ by_frame;
        // SAFETY: the table belongs to this thread, and the window is a mapped part of its stack.
        unsafe {
            let table = &*self.stacks;
            for recent in table.recent(entry) {
                if recent.return_address == caller.return_address
                    && is_same(caller, window, table.further(recent), self.max_frames as usize)
                {
                    return recent.number;
                }
            }
            self.find_or_write_stack(caller, window, entry, time())
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn find_or_write_stack(&mut self, caller: Caller, window: Window, entry: usize, time: u64) -> u16 {
        // Not set to zero: that takes longer than most walks.
        let mut frames = [const { MaybeUninit::uninit() }; MAX_FRAMES];
        // SAFETY: as above.
        let (table, whole) = unsafe {
            let max = (self.max_frames as usize).clamp(1, MAX_FRAMES);
            (&mut *self.stacks, walk(caller, window, frames.get_unchecked_mut(..max)))
        };
        self.write_name(time);
        for stack in [whole, whole.get(..1).unwrap_or_default()] {
            if let Some(number) = table.find(stack) {
                table.set_recent(entry, number);
                return number;
            }
            // SAFETY: this thread is writing.
            if table.has_room(stack.len()) && unsafe { self.writer.put_stack(time, stack) } {
                let number = table.insert(stack);
                table.set_recent(entry, number);
                return number;
            }
        }
        0
    }

    /// Writes the thread's name if it was renamed. The thread must be writing.
    fn write_name(&mut self, time: u64) {
        let renames = RENAMES.load(Ordering::Relaxed);
        if self.renames == renames {
            return;
        }
        let Some(_permit) = restrictions::permit() else { return };
        self.renames = renames;
        let name = sys::thread_name();
        let slot = self.writer.slot();
        // SAFETY: the slot belongs to this thread.
        unsafe {
            if (*slot).comm == name {
                return;
            }
            (*slot).comm = name;
            let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| name[at + byte]));
            let payload = Payload { first: word(0), second: word(8) };
            self.writer.put_with_payload(Record::new(time, op::RENAMED, 0, 0, 0), payload);
        }
    }
}

/// Records that a thread of the process was renamed, possibly the current one. `now` reads the clock with this number.
pub(crate) fn renamed(now: impl FnOnce(u32) -> u64) {
    RENAMES.fetch_add(1, Ordering::Relaxed);
    let stack_pointer = stack_pointer();
    // SAFETY: the block belongs to this thread, and is used only while the thread records.
    unsafe {
        let thread = &mut *current();
        if thread.is_recording() {
            thread.begin_writing(stack_pointer);
            thread.write_name(now(thread.clock));
            thread.end_writing();
        }
    }
}

/// Starts the session of the first thread. Runs before main, unless a constructor of another library locks earlier, while the
/// environment is still as klock set it.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"), used)]
#[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
static CONSTRUCTOR: extern "C" fn() = start_first;

extern "C" fn start_first() {
    let errno = sys::errno();
    restrictions::find_inherited();
    exec::find_own_file(start_first as *const c_void);
    // SAFETY: the block belongs to this thread.
    unsafe { try_start(current(), 0) };
    sys::set_errno(errno);
}

/// Handles a call of a thread that does not record. Starts a session if possible, and returns whether the thread records now;
/// if not, counts the call if it should have been recorded.
#[cold]
#[inline(never)]
pub(crate) unsafe fn try_start(thread: *mut Thread, stack_pointer: usize) -> bool {
    // SAFETY: the block belongs to this thread. A signal handler that interrupts this function finds a valid state.
    unsafe {
        let thread = &mut *thread;
        match thread.state {
            state::NEW => start(thread),
            // This is a child of the process that recorded, or the recording has ended.
            state::RECORDING => {
                if !process::is_current(thread.generation_counter, thread.generation) {
                    return start(thread);
                }
                if restrictions::has_ended() {
                    count_excluded(thread);
                }
                false
            }
            state::EXCLUDED => {
                count_excluded(thread);
                false
            }
            state::OFF | state::STARTING => false,
            state::UNRECORDED | state::EXITED => count_or_retry(thread),
            // A call was interrupted while it wrote a record: by a signal handler, which is deeper in the stack, or by a jump
            // out of a handler, after which it will not continue.
            interrupted => {
                if !process::is_current(thread.generation_counter, thread.generation) {
                    return start(thread);
                }
                let on_stack = |at| at >= thread.stack.low && at < thread.stack.high;
                if stack_pointer > interrupted && on_stack(stack_pointer) && on_stack(interrupted) {
                    thread.end_writing();
                    return thread.is_recording();
                }
                thread.writer.lose_nested();
                false
            }
        }
    }
}

/// Starts a session of the thread; returns whether it records now. Preserves errno.
unsafe fn start(thread: &mut Thread) -> bool {
    let errno = sys::errno();
    thread.state = state::STARTING;
    thread.writer.forget();
    compiler_fence(Ordering::SeqCst);
    let permit = restrictions::permit();
    let connection = if restrictions::has_ended() {
        Err(state::EXCLUDED)
    } else {
        let missing = if permit.is_some() { state::OFF } else { state::EXCLUDED };
        process::connection(exit, permit.is_some()).ok_or(missing)
    };
    let state = match connection {
        Err(state::EXCLUDED) => exclude(thread),
        Err(state) => state,
        // SAFETY: the region is the one of this process.
        Ok(connection) => unsafe { claim_slot(thread, connection, permit.is_some()) },
    };
    drop(permit);
    compiler_fence(Ordering::SeqCst);
    thread.state = state;
    sys::set_errno(errno);
    // SAFETY: the state matches the pointers.
    unsafe {
        match state {
            state::UNRECORDED => count_unrecorded(thread),
            state::EXCLUDED => count_excluded(thread),
            _ => {}
        }
        thread.is_recording()
    }
}

/// Prepares to count the calls of a thread. A child that cannot connect counts in its parent's region. Returns the new state.
fn exclude(thread: &mut Thread) -> usize {
    thread.region = process::region();
    if thread.region.is_null() { state::OFF } else { state::EXCLUDED }
}

/// Counts a call that is not recorded because of a restriction.
#[cold]
unsafe fn count_excluded(thread: &Thread) {
    // SAFETY: the region is mapped as long as the process does not connect again, which it does not.
    unsafe { slot::atomic_u64(&raw mut (*thread.region).unrecorded_events).fetch_add(1, Ordering::Relaxed) };
}

/// Counts a call of a thread without a session, while the recording is active.
unsafe fn count_unrecorded(thread: &mut Thread) {
    // SAFETY: `start` stored the region of this process.
    unsafe {
        if (*thread.active).load(Ordering::Relaxed) != 0 {
            thread.unrecorded_calls += 1;
            slot::atomic_u64(&raw mut (*thread.region).unrecorded_events).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Claims a slot and sets up the thread's block. Returns the new state.
unsafe fn claim_slot(thread: &mut Thread, connection: Connection, may_call: bool) -> usize {
    let region = connection.region;
    thread.region = region;
    thread.generation = connection.generation;
    thread.generation_counter = connection.generation_counter;
    let facts = if may_call {
        Facts::query()
    } else {
        // SAFETY: the region is mapped.
        let comm = unsafe { slot::first_name(region) };
        // With a filter, records have the time-stamp counter, and the C library reads it for this clock as well.
        Facts { tid: restrictions::own_tid(), comm, now_ns: clock::monotonic_ns() }
    };
    thread.tid = facts.tid;
    thread.rounds = 0;
    // SAFETY: the region is mapped; only the atomic fields of its head change.
    unsafe {
        thread.clock = (*region).clock;
        thread.max_frames = (*region).max_frames.min(MAX_FRAMES as u32);
        thread.active = AtomicU32::from_ptr(&raw mut (*region).active);
        let Some(slot) = slot::claim(region) else {
            if thread.unrecorded_calls == 0 {
                slot::atomic_u32(&raw mut (*region).unrecorded_threads).fetch_add(1, Ordering::Relaxed);
            }
            return state::UNRECORDED;
        };
        slot::start_session(slot, &facts);
        thread.writer = Writer::new(region, slot);
    }
    prepare_stacks(thread, may_call);
    process::call_at_exit(&raw const *thread as *const c_void);
    state::RECORDING
}

/// Allocates or clears the stack table and finds the bounds of the stack.
fn prepare_stacks(thread: &mut Thread, may_call: bool) {
    if thread.max_frames == 0 {
        return;
    }
    if thread.stacks.is_null() && may_call {
        // Without memory, records have no stacks.
        thread.stacks = sys::allocate(size_of::<Table>()).map_or(null_mut(), |memory| memory.cast());
    } else {
        if thread.stacks.is_null() {
            thread.stacks = table::take_reserved();
        }
        // SAFETY: null or a table that belongs to this thread. A child inherits it, but stack numbers are per session.
        if let Some(table) = unsafe { thread.stacks.as_mut() } {
            table.clear();
        }
    }
    if thread.stack.high == 0 {
        let stack_pointer = stack_pointer();
        let bounds = if may_call {
            bounds::of_this_thread(thread.tid == sys::pid(), stack_pointer)
        } else {
            bounds::known_part(stack_pointer)
        };
        thread.stack = bounds.unwrap_or(thread.stack);
    }
}

/// Counts a call of a thread without a session, or tries again to start one.
unsafe fn count_or_retry(thread: &mut Thread) -> bool {
    // SAFETY: `start` set the generation and the region.
    unsafe {
        let is_child = !process::is_current(thread.generation_counter, thread.generation);
        let retry = thread.state == state::UNRECORDED && thread.unrecorded_calls.is_multiple_of(RETRY_CALLS);
        if is_child || retry {
            return start(thread);
        }
        count_unrecorded(thread);
    }
    false
}

/// Ends the session. The C library calls it when a thread exits, in each round of destructors.
unsafe extern "C" fn exit(_: *mut c_void) {
    // SAFETY: the block belongs to this thread, and so does the slot in the process that claimed it.
    unsafe {
        let thread = &mut *current();
        let has_session = !matches!(
            thread.state,
            state::NEW | state::OFF | state::STARTING | state::UNRECORDED | state::EXITED | state::EXCLUDED
        );
        if !has_session || !process::is_current(thread.generation_counter, thread.generation) {
            return;
        }
        thread.rounds += 1;
        if thread.rounds < ROUNDS {
            process::call_at_exit(&raw const *thread as *const c_void);
            return;
        }
        thread.state = state::EXITED;
        compiler_fence(Ordering::SeqCst);
        let slot = thread.writer.slot();
        thread.writer.set_idle();
        let stacks = core::mem::replace(&mut thread.stacks, null_mut());
        if let Some(_permit) = restrictions::permit() {
            slot::end_session(slot, sys::thread_name(), sys::monotonic_ns());
            if !stacks.is_null() {
                sys::unmap(stacks.cast(), size_of::<Table>());
            }
        } else {
            // Without a readable clock, the thread ends when it started.
            let now_ns = if restrictions::has_ended() { (*slot).start_ns } else { clock::monotonic_ns() };
            slot::end_session(slot, (*slot).comm, now_ns);
            table::give_back(stacks);
        }
        thread.writer.forget();
    }
}

/// Returns the stack pointer, or an address slightly above it.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nostack, nomem, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}
