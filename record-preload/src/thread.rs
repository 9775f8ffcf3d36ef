//! What a thread needs to record: its slot and ring in the region, its stacks, and a gate that says in one word whether a call is
//! recorded. A thread finds its place at its first call and gives it back when it ends. Everything here but [`Thread::is_open`]
//! happens once in a thread's life, or never.

use core::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

use trace_format::preload::{MAX_FRAMES, Region};

use crate::{
    bounds::{self, Bounds},
    name, place,
    process::{self, Connection},
    ring::Ring,
    sys,
    table::Table,
    walk::{Caller, Window, is_same, walk},
};

/// A thread's block. All zeros is a thread that has called nothing yet.
#[repr(C, align(64))]
pub(crate) struct Thread {
    /// One of [`gate`], or the stack pointer of a call that writes a record right now.
    pub(crate) gate: usize,
    generation: u32,
    pub(crate) clock: u32,
    generation_at: *const AtomicU32,
    /// The region's word that says whether calls are recorded.
    active: *const AtomicU32,
    pub(crate) ring: Ring,
    stacks: *mut Table,
    stack: Bounds,
    most_frames: u32,
    /// As its process sees it.
    pub(crate) tid: u32,
    /// Destructors' rounds at its end that are over.
    rounds: u32,
    /// How many renamings the process had seen when the name was last written.
    pub(crate) renamings: u32,
    region: *mut Region,
    /// Calls without a place.
    turned_away: u64,
}

/// Whether a thread's calls are recorded.
mod gate {
    /// It has called nothing yet.
    pub(super) const NEW: usize = 0;
    /// They are.
    pub(super) const OPEN: usize = 1;
    /// They are not, and never will be.
    pub(super) const OFF: usize = 2;
    /// Not now: it is finding its place.
    pub(super) const SETTING_UP: usize = 3;
    /// There was no place for it.
    pub(super) const UNPLACED: usize = 4;
    /// It gave its place back and is about to end.
    pub(super) const GONE: usize = 5;
}

/// Rounds of destructors at a thread's end (PTHREAD_DESTRUCTOR_ITERATIONS): it records until the last.
const ROUNDS: u32 = 4;
/// A thread without a place looks for one again every so many calls.
const LOOK_AGAIN: u64 = 256;

// The block of each thread. Of std's two ways to such a thing one is a call and the other is not stable; a program can't
// close this library, so that its blocks are at a place that the loader knows.
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

/// This thread's block.
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

/// This thread's block.
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
    /// Whether its calls are recorded now.
    #[inline(always)]
    pub(crate) unsafe fn is_open(&self) -> bool {
        // SAFETY: while the gate is open both are mapped; in a child the first one says so before the second is read.
        unsafe {
            self.gate == gate::OPEN
                && process::is_current(self.generation_at, self.generation)
                && (*self.active).load(Ordering::Relaxed) != 0
        }
    }

    /// Closes the gate for what interrupts this call, which is `stack_pointer` deep, until [`Thread::leave`].
    #[inline(always)]
    pub(crate) unsafe fn enter(&mut self, stack_pointer: usize) {
        self.gate = stack_pointer;
        // SAFETY: the gate was open.
        unsafe { self.ring.busy() };
    }

    /// Opens it again.
    #[inline(always)]
    pub(crate) unsafe fn leave(&mut self) {
        // SAFETY: the gate was open.
        unsafe { self.ring.idle() };
        compiler_fence(Ordering::SeqCst);
        self.gate = gate::OPEN;
    }

    /// The number of the caller's stack, which is written to the ring if it is new; 0 if there is no room for it.
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
        let place = Table::place(caller.return_address, caller.frame_pointer);
        // SAFETY: the table is this thread's own, and the window is mapped: it is in the stack that the thread is on.
        unsafe {
            let (number, frames) = (*self.stacks).recent(place);
            if is_same(caller, window, frames, self.most_frames as usize) {
                return number;
            }
            self.other_stack(caller, window, place, time())
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn other_stack(&mut self, caller: Caller, window: Window, place: usize, time: u64) -> u16 {
        let mut frames = [0; MAX_FRAMES];
        // SAFETY: as above.
        let (table, count) = unsafe {
            let most = (self.most_frames as usize).clamp(1, MAX_FRAMES);
            (&mut *self.stacks, walk(caller, window, frames.get_unchecked_mut(..most)))
        };
        name::look_again(self, time);
        let whole = frames.get(..count).unwrap_or_default();
        for stack in [whole, whole.get(..1).unwrap_or_default()] {
            if let Some(number) = table.find(stack) {
                table.remember(place, number);
                return number;
            }
            // SAFETY: the gate is closed, and the ring this thread's.
            if table.has_room(stack.len()) && unsafe { self.ring.put_stack(time, stack) } {
                let number = table.insert(stack);
                table.remember(place, number);
                return number;
            }
        }
        0
    }
}

/// Before main: the process asks for its region, and its first thread takes its place.
pub(crate) fn begin_early() {
    // SAFETY: the block is this thread's.
    unsafe { open(current(), 0) };
}

/// A call found the gate closed. Whether it is open now; if not, the call is counted where it ought to have been recorded.
#[cold]
#[inline(never)]
pub(crate) unsafe fn open(thread: *mut Thread, stack_pointer: usize) -> bool {
    // SAFETY: the block is this thread's; a signal handler that comes between finds a gate that says what is going on.
    unsafe {
        let thread = &mut *thread;
        match thread.gate {
            gate::NEW => settle(thread),
            // A child of the process that it was open in, or the recording is over.
            gate::OPEN => !process::is_current(thread.generation_at, thread.generation) && settle(thread),
            gate::OFF | gate::SETTING_UP => false,
            gate::UNPLACED | gate::GONE => turn_away(thread),
            // Writing a record was interrupted: by a handler, which is deeper in the stack; or it was left by a jump out of
            // one, and will not be finished.
            interrupted => {
                if !process::is_current(thread.generation_at, thread.generation) {
                    return settle(thread);
                }
                let on_stack = |at| at >= thread.stack.low && at < thread.stack.high;
                if stack_pointer > interrupted && on_stack(stack_pointer) && on_stack(interrupted) {
                    thread.leave();
                    return thread.is_open();
                }
                thread.ring.lose_nested();
                false
            }
        }
    }
}

/// Takes a place for the thread. errno stays.
unsafe fn settle(thread: &mut Thread) -> bool {
    let errno = sys::errno();
    thread.gate = gate::SETTING_UP;
    thread.ring.forget();
    compiler_fence(Ordering::SeqCst);
    let gate = match process::connection() {
        None => gate::OFF,
        // SAFETY: the region is that of this process.
        Some(connection) => unsafe { take_place(thread, connection) },
    };
    compiler_fence(Ordering::SeqCst);
    thread.gate = gate;
    sys::set_errno(errno);
    // SAFETY: the gate says what there is.
    unsafe {
        if gate == gate::UNPLACED {
            count_unplaced(thread);
        }
        thread.is_open()
    }
}

/// Counts a call of a thread without a place, while calls are recorded.
unsafe fn count_unplaced(thread: &mut Thread) {
    // SAFETY: the region was found when the thread looked for a place, and is that of this process.
    unsafe {
        if (*thread.active).load(Ordering::Relaxed) != 0 {
            thread.turned_away += 1;
            place::atomic_wide(&raw mut (*thread.region).unplaced_events).fetch_add(1, Ordering::Relaxed);
        }
    }
}

unsafe fn take_place(thread: &mut Thread, connection: Connection) -> usize {
    let region = connection.region;
    thread.region = region;
    thread.generation = connection.generation;
    thread.generation_at = connection.generation_at;
    thread.tid = sys::tid();
    thread.rounds = 0;
    // SAFETY: the region is mapped; its head does not change but for the atomic fields.
    unsafe {
        thread.clock = (*region).clock;
        thread.most_frames = (*region).max_frames.min(MAX_FRAMES as u32);
        thread.active = AtomicU32::from_ptr(&raw mut (*region).active);
        let Some(slot) = place::take(region) else {
            if thread.turned_away == 0 {
                place::atomic(&raw mut (*region).unplaced).fetch_add(1, Ordering::Relaxed);
            }
            return gate::UNPLACED;
        };
        place::begin(slot, thread.tid);
        let base = region.cast::<u8>().add((*slot).ring_at as usize);
        thread.ring = Ring::new(slot, base, (*region).lossless != 0);
    }
    prepare_stacks(thread);
    process::at_thread_end(&raw const *thread as *const c_void);
    gate::OPEN
}

fn prepare_stacks(thread: &mut Thread) {
    if thread.most_frames == 0 {
        return;
    }
    if thread.stacks.is_null() {
        // Without memory for it records have no stacks.
        thread.stacks = sys::allocate(size_of::<Table>()).map_or(null_mut(), |memory| memory.cast());
    } else {
        // SAFETY: the thread's own, which a child inherits; its numbers were of another life.
        unsafe { (*thread.stacks).clear() };
    }
    if thread.stack.high == 0 {
        let here = stack_pointer();
        thread.stack = bounds::of_this_thread(thread.tid == sys::pid(), here).unwrap_or(thread.stack);
    }
}

/// A call of a thread that has no place: counted, and now and then it looks whether there is one by now.
unsafe fn turn_away(thread: &mut Thread) -> bool {
    // SAFETY: generation and region were set when it looked for a place.
    unsafe {
        let is_child = !process::is_current(thread.generation_at, thread.generation);
        if is_child || thread.gate == gate::UNPLACED && thread.turned_away.is_multiple_of(LOOK_AGAIN) {
            return settle(thread);
        }
        count_unplaced(thread);
    }
    false
}

/// Called by the C library when a thread ends, in each round of destructors.
pub(crate) unsafe extern "C" fn end(_: *mut c_void) {
    // SAFETY: the block is this thread's, and the slot its own while it is the process that took it.
    unsafe {
        let thread = &mut *current();
        let was_placed =
            !matches!(thread.gate, gate::NEW | gate::OFF | gate::SETTING_UP | gate::UNPLACED | gate::GONE);
        if !was_placed || !process::is_current(thread.generation_at, thread.generation) {
            return;
        }
        thread.rounds += 1;
        if thread.rounds < ROUNDS {
            process::at_thread_end(&raw const *thread as *const c_void);
            return;
        }
        thread.gate = gate::GONE;
        compiler_fence(Ordering::SeqCst);
        let slot = thread.ring.slot();
        thread.ring.idle();
        place::end(slot);
        thread.ring.forget();
        let stacks = core::mem::replace(&mut thread.stacks, null_mut());
        if !stacks.is_null() {
            sys::unmap(stacks.cast(), size_of::<Table>());
        }
    }
}

/// The stack pointer, or a little above it.
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
