//! The recording state of a thread, in thread-local storage: its writer and its stack table. Each call asks
//! here whether it is recorded, and for the number of its caller's stack. `session` starts and ends the
//! recording of a thread.

use core::{
    ffi::{c_char, c_int},
    mem::MaybeUninit,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

use trace_format::preload::{MAX_FRAMES, Payload, Record, Region, active, op};

use crate::{
    bounds::Bounds,
    clock, process, real, restrictions,
    sampling::Sampling,
    sys,
    table::Table,
    walk::{Caller, ReadablePages, Window, is_same, walk},
    writer::Writer,
};

mod session;

pub(crate) use session::try_start;

/// The block of a thread in thread-local storage. All zeros is a thread that has not called anything yet.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// One of [`state`], or the stack pointer of a call that is writing a record.
    state: usize,
    generation: u32,
    pub(crate) clock: u16,
    /// Calls are not sampled.
    pub(crate) records_all: bool,
    pub(crate) records_spins: bool,
    generation_counter: *const AtomicU32,
    /// The region's `active` field.
    active: *const AtomicU32,
    pub(crate) writer: Writer,
    stacks: *mut Table,
    stack: Bounds,
    pages: ReadablePages,
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
    pub(crate) sampling: Sampling,
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

/// Number of renames of threads of this process. A thread that renames another one cannot write the other's
/// records, so each thread checks this counter from time to time.
static RENAMES: AtomicU32 = AtomicU32::new(0);

// Thread-local storage of the block. Of std's two mechanisms, one needs a function call and the other is not
// stable. Programs cannot dlclose this library, so the initial-exec model works.
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
        // SAFETY: both pointers are mapped in this state. In a child process, the generation check fails
        // before `active` is read.
        unsafe {
            self.state == state::RECORDING
                && process::is_current(self.generation_counter, self.generation)
                && (*self.active).load(Ordering::Relaxed) == active::RECORDING
        }
    }

    /// Starts writing records, by a call at `stack_pointer`. Until [`Thread::end_writing`], signal handlers
    /// cannot record.
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

    /// Returns the number of the caller's stack, and writes the stack if it is new; 0 if there is no room for
    /// it.
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
        // A frame pointer that no walk follows is any value, a new one for each call: it does not tell stacks
        // apart.
        let by_frame =
            if window.has_frame(caller.frame_pointer) { Table::mix(caller.frame_pointer) } else { 0 };
        let entry = Table::mix(caller.return_address) ^ by_frame;
        // SAFETY: the table belongs to this thread, and the window is a mapped part of its stack.
        unsafe {
            let table = &*self.stacks;
            for recent in table.recent(entry) {
                if recent.return_address == caller.return_address
                    && is_same(
                        caller,
                        (window, &mut self.pages),
                        table.further(recent),
                        self.max_frames as usize,
                    )
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
            (&mut *self.stacks, walk(caller, (window, &mut self.pages), frames.get_unchecked_mut(..max)))
        };
        self.write_name(time);
        self.writer.begin_change();
        let number = self.number_of(table, whole, entry, time);
        self.writer.end_change();
        number
    }

    /// Returns the number of a stack, or of its first frame alone. Writes it if it is new. The thread must be
    /// writing.
    fn number_of(&mut self, table: &mut Table, whole: &[usize], entry: usize, time: u64) -> u16 {
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

/// `pthread_setname_np`. Forwarded first: the recorded name is the one that the kernel has afterwards.
pub(crate) unsafe extern "C" fn set_name(thread: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { real::SETNAME.get()(thread, name) };
    if result == 0 {
        renamed(clock::now);
    }
    result
}

/// `prctl`, which may rename the thread.
pub(crate) unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { restrictions::prctl(option, a, b, c, d) };
    if option == libc::PR_SET_NAME && result == 0 {
        renamed(clock::now);
    }
    result
}

/// Records that a thread of the process was renamed, possibly the current one. `now` reads the clock with
/// this number.
pub(crate) fn renamed(now: impl FnOnce(u16) -> u64) {
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
