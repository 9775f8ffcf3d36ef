//! The session of a thread: it claims a slot in the region at the thread's first call, and gives it back at
//! the thread's exit. Calls of a thread without a session are counted. All functions run once per session or
//! rarely.

use core::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{Ordering, compiler_fence},
};

use trace_format::preload::{MAX_FRAMES, Record, active, api, op};

use super::{Thread, current, stack_pointer, state};
use crate::{
    bounds, clock, exec,
    process::{self, Connection},
    real, restrictions,
    sampling::Sampling,
    slot::{self, Facts},
    sys,
    table::{self, Table},
    writer::Writer,
};

/// Rounds of destructors at a thread's exit (PTHREAD_DESTRUCTOR_ITERATIONS). The thread records until the
/// last one.
const ROUNDS: u32 = 4;
/// A call of a signal handler is at least so many bytes below the interrupted call. The kernel's frame has
/// the state of the floating-point unit, 512 bytes on x86_64 and 528 on aarch64, the other registers and the
/// facts of the signal, 440 bytes or more (Linux 2.6 to 7.2), and on x86_64 it leaves out 128 bytes.
const SIGNAL_FRAME: usize = 1024;
/// A thread without a session tries to start one every this many calls.
const RETRY_CALLS: u64 = 256;

/// Starts the session of the first thread. Runs before main, unless a constructor of another library locks
/// earlier, while the environment is still as klock set it.
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

/// Handles a call of a thread that does not record. Starts a session if possible, and returns whether the
/// thread records now; if not, counts the call if it should have been recorded.
#[cold]
#[inline(never)]
pub(crate) unsafe fn try_start(thread: *mut Thread, stack_pointer: usize) -> bool {
    // SAFETY: the block belongs to this thread. A signal handler that interrupts this function finds a valid
    // state.
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
            // A call was interrupted while it wrote a record: by a signal handler, which is deeper in the
            // stack by the kernel's frame at least, or by a jump out of a handler, after which it will not
            // continue.
            interrupted => {
                if !process::is_current(thread.generation_counter, thread.generation) {
                    return start(thread);
                }
                let on_stack = |at| at >= thread.stack.low && at < thread.stack.high;
                let is_jump = stack_pointer + SIGNAL_FRAME > interrupted;
                if is_jump && on_stack(stack_pointer) && on_stack(interrupted) {
                    if thread.writer.is_changing() {
                        return start_again(thread);
                    }
                    thread.end_writing();
                    return thread.is_recording();
                }
                thread.writer.lose_nested();
                false
            }
        }
    }
}

/// Ends the session of a thread that left a change of its writer unfinished, and starts another one; returns
/// whether it records now. What was published is whole. A handler that jumps out of this would leave nothing
/// that can go on, so signals wait.
unsafe fn start_again(thread: &mut Thread) -> bool {
    let permit = restrictions::permit();
    let blocked = permit.as_ref().map(|_| sys::block_signals());
    thread.state = state::EXITED;
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the thread was recording.
    unsafe { end(thread, permit.is_some()) };
    drop(permit);
    // SAFETY: as above.
    let is_recording = unsafe { start(thread) };
    if let Some(blocked) = blocked {
        sys::set_blocked_signals(blocked);
    }
    is_recording
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

/// Prepares to count the calls of a thread. A child that cannot connect counts in its parent's region.
/// Returns the new state.
fn exclude(thread: &mut Thread) -> usize {
    thread.region = process::region();
    if thread.region.is_null() { state::OFF } else { state::EXCLUDED }
}

/// Counts a call that is not recorded because of a restriction.
#[cold]
unsafe fn count_excluded(thread: &Thread) {
    // SAFETY: the region is mapped as long as the process does not connect again, which it does not.
    unsafe { (*thread.region).unrecorded_events.fetch_add(1, Ordering::Relaxed) };
}

/// Counts a call of a thread without a session, while the recording is active.
unsafe fn count_unrecorded(thread: &mut Thread) {
    // SAFETY: `start` stored the region of this process.
    unsafe {
        if (*thread.active).load(Ordering::Relaxed) == active::RECORDING {
            thread.unrecorded_calls += 1;
            (*thread.region).unrecorded_events.fetch_add(1, Ordering::Relaxed);
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
        // With a filter, records have the time-stamp counter, and the C library reads it for this clock as
        // well.
        Facts { tid: restrictions::own_tid(), comm, now_ns: clock::monotonic_ns() }
    };
    thread.tid = facts.tid;
    thread.rounds = 0;
    // SAFETY: the region is mapped; only the atomic fields of its head change.
    unsafe {
        thread.clock = (*region).clock as u16;
        let below = (*region).sample_below;
        (thread.records_all, thread.records_spins) = (below == 0, (*region).no_spin == 0);
        thread.sampling = Sampling::new(below, u64::from(facts.tid) ^ facts.now_ns);
        thread.max_frames = (*region).max_frames.min(MAX_FRAMES as u32);
        thread.active = &raw const (*region).active;
        let Some(slot) = slot::claim(region) else {
            return state::UNRECORDED;
        };
        slot::start_session(slot, &facts);
        thread.writer = Writer::new(region, connection.shape, slot);
        let is_active = (*thread.active).load(Ordering::Relaxed) == active::RECORDING;
        if is_active && (!may_call || facts.tid != sys::pid()) {
            put_thread(thread, op::STARTED);
        }
    }
    prepare_stacks(thread, may_call);
    process::call_at_exit(&raw const *thread as *const c_void);
    state::RECORDING
}

/// Writes a record about the thread itself.
unsafe fn put_thread(thread: &mut Thread, op: u8) {
    // SAFETY: the thread has a session, and nothing else of it writes.
    unsafe {
        thread.writer.set_busy();
        let address = real::SELF.get()() as u64;
        thread.writer.put(Record::new(clock::now(thread.clock), op, api::THREAD, address, 0));
        thread.writer.set_idle();
    }
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
        // SAFETY: null or a table that belongs to this thread. A child inherits it, but stack numbers are per
        // session.
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
        let is_recording = thread.is_recording();
        thread.state = state::EXITED;
        compiler_fence(Ordering::SeqCst);
        if is_recording {
            put_thread(thread, op::POSTED);
        }
        let stacks = core::mem::replace(&mut thread.stacks, null_mut());
        let permit = restrictions::permit();
        end(thread, permit.is_some());
        if permit.is_none() {
            table::give_back(stacks);
        } else if !stacks.is_null() {
            sys::unmap(stacks.cast(), size_of::<Table>());
        }
    }
}

/// Ends the thread's session in the region. Makes system calls only if it may.
unsafe fn end(thread: &mut Thread, may_call: bool) {
    let slot = thread.writer.slot();
    // SAFETY: the slot belongs to this thread, and its region is mapped.
    unsafe {
        thread.writer.set_idle();
        if may_call {
            slot::end_session(slot, sys::thread_name(), sys::monotonic_ns());
        } else {
            // Without a readable clock, the thread ends when it started.
            let now_ns = if restrictions::has_ended() { (*slot).start_ns } else { clock::monotonic_ns() };
            slot::end_session(slot, (*slot).comm, now_ns);
        }
    }
    thread.writer.forget();
}
