//! The pthread locks of the demo workload, for static variables with symbols, by which a recorder finds their names.
//!
//! A lock is the first field of its variable, so both have the same address. The calls go to the C library directly: the recorder
//! probes them there, and no crate wraps them.

use std::cell::UnsafeCell;

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

impl DemoMutex {
    pub(crate) const fn new() -> Self {
        Self { lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER) }
    }

    // Inlined, so that the acquisition site is the line of the caller.
    #[inline(always)]
    pub(crate) fn lock(&self) {
        // SAFETY: the pointer is that of an initialised, never moved static mutex.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // SAFETY: the pointer is that of an initialised static mutex, which this thread holds.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }
}

impl DemoRwLock {
    pub(crate) const fn new() -> Self {
        Self { lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER) }
    }

    #[inline(always)]
    pub(crate) fn read(&self) {
        // SAFETY: the pointer is that of an initialised, never moved static lock.
        unsafe { libc::pthread_rwlock_rdlock(self.lock.get()) };
    }

    #[inline(always)]
    pub(crate) fn write(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_rwlock_wrlock(self.lock.get()) };
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // SAFETY: the pointer is that of an initialised static lock, which this thread holds.
        unsafe { libc::pthread_rwlock_unlock(self.lock.get()) };
    }
}
