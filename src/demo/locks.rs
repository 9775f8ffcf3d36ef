//! The pthread locks of the demo's workload, as static variables with symbols, so that a recorder finds their names.
//!
//! A lock is the first field of its variable: the variable's address is the lock's. Where a recorder watches from
//! outside, a call is the bare pthread call. With [`note_events`] on, each call also notes what happened in a list of
//! its thread; `in_process` collects the lists.

use std::{
    cell::{RefCell, UnsafeCell},
    panic::Location,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use trace_format::{EventKind, Mode};

/// A POSIX mutex.
#[repr(C)]
pub(crate) struct DemoMutex {
    lock: UnsafeCell<libc::pthread_mutex_t>,
}

/// A POSIX reader-writer lock.
#[repr(C)]
pub(crate) struct DemoRwLock {
    lock: UnsafeCell<libc::pthread_rwlock_t>,
}

// SAFETY: the only access is through pthread calls, which are made for concurrent use.
unsafe impl Sync for DemoMutex {}
// SAFETY: as above.
unsafe impl Sync for DemoRwLock {}

/// What a lock noted about one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) ts_ns: i64,
    pub(crate) kind: EventKind,
    pub(crate) mode: Mode,
    pub(crate) address: usize,
    pub(crate) place: &'static Location<'static>,
    pub(crate) tid: i32,
    pub(crate) cpu: i32,
    pub(crate) wait_ns: Option<i64>,
}

static NOTING: AtomicBool = AtomicBool::new(false);
static NOTES: Mutex<Vec<Note>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
}

/// From now on every call is noted.
pub(crate) fn note_events() {
    NOTING.store(true, Ordering::Relaxed);
}

/// To be called by each thread at its end: hands its notes over.
pub(crate) fn thread_ends() {
    let mut mine = MINE.with_borrow_mut(std::mem::take);
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).append(&mut mine);
}

/// All notes, in the order of time.
pub(crate) fn take_notes() -> Vec<Note> {
    let mut notes = std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner));
    notes.sort_by_key(|note| note.ts_ns);
    notes
}

impl DemoMutex {
    pub(crate) const fn new() -> Self {
        Self { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER) }
    }

    pub(crate) fn address(&self) -> usize {
        self.lock.get() as usize
    }

    // Inlined, so that the acquisition point is the line that calls it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn lock(&self) {
        let lock = self.lock.get();
        if NOTING.load(Ordering::Relaxed) {
            // SAFETY: the pointer is that of an initialised, never moved static mutex.
            noted(
                self.address(),
                Mode::Exclusive,
                || unsafe { libc::pthread_mutex_trylock(lock) },
                || unsafe { libc::pthread_mutex_lock(lock) },
            );
        } else {
            // SAFETY: as above.
            unsafe { libc::pthread_mutex_lock(lock) };
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn unlock(&self) {
        note_release(self.address(), Mode::Exclusive);
        // SAFETY: the pointer is that of an initialised static mutex, which this thread holds.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }
}

impl DemoRwLock {
    pub(crate) const fn new() -> Self {
        Self { lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER) }
    }

    pub(crate) fn address(&self) -> usize {
        self.lock.get() as usize
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn read(&self) {
        let lock = self.lock.get();
        if NOTING.load(Ordering::Relaxed) {
            // SAFETY: the pointer is that of an initialised, never moved static lock.
            noted(
                self.address(),
                Mode::Shared,
                || unsafe { libc::pthread_rwlock_tryrdlock(lock) },
                || unsafe { libc::pthread_rwlock_rdlock(lock) },
            );
        } else {
            // SAFETY: as above.
            unsafe { libc::pthread_rwlock_rdlock(lock) };
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn write(&self) {
        let lock = self.lock.get();
        if NOTING.load(Ordering::Relaxed) {
            // SAFETY: the pointer is that of an initialised, never moved static lock.
            noted(
                self.address(),
                Mode::Exclusive,
                || unsafe { libc::pthread_rwlock_trywrlock(lock) },
                || unsafe { libc::pthread_rwlock_wrlock(lock) },
            );
        } else {
            // SAFETY: as above.
            unsafe { libc::pthread_rwlock_wrlock(lock) };
        }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn unlock(&self, mode: Mode) {
        note_release(self.address(), mode);
        // SAFETY: the pointer is that of an initialised static lock, which this thread holds.
        unsafe { libc::pthread_rwlock_unlock(self.lock.get()) };
    }
}

/// Tries first, so that contended is a fact: a lock that is not free is waited for from the failed attempt on.
#[track_caller]
fn noted(address: usize, mode: Mode, attempt: impl FnOnce() -> i32, wait: impl FnOnce() -> i32) {
    let place = Location::caller();
    let waited_from = if attempt() == 0 {
        None
    } else {
        let from = now_ns();
        note(Note {
            ts_ns: from,
            kind: EventKind::Wait,
            mode,
            address,
            place,
            tid: tid(),
            cpu: cpu(),
            wait_ns: None,
        });
        wait();
        Some(from)
    };
    let ts_ns = now_ns();
    let wait_ns = Some(waited_from.map_or(0, |from| ts_ns - from));
    note(Note { ts_ns, kind: EventKind::Acquire, mode, address, place, tid: tid(), cpu: cpu(), wait_ns });
}

#[track_caller]
fn note_release(address: usize, mode: Mode) {
    if NOTING.load(Ordering::Relaxed) {
        let place = Location::caller();
        let ts_ns = now_ns();
        note(Note {
            ts_ns,
            kind: EventKind::Release,
            mode,
            address,
            place,
            tid: tid(),
            cpu: cpu(),
            wait_ns: None,
        });
    }
}

fn note(note: Note) {
    MINE.with_borrow_mut(|notes| notes.push(note));
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

pub(crate) fn tid() -> i32 {
    thread_local! {
        // SAFETY: gettid has no preconditions.
        static TID: i32 = unsafe { libc::gettid() };
    }
    TID.with(|tid| *tid)
}

fn cpu() -> i32 {
    // SAFETY: sched_getcpu has no preconditions.
    unsafe { libc::sched_getcpu() }
}
