//! The functions that are interposed here, as the next library in line has them: the C library, or another interposer between.
//! Each is looked up at its first use, because constructors of other libraries run before ours, and an allocator may lock while
//! a function is looked up. A name in, a function out; one that does not exist answers ENOSYS.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use libc::{clockid_t, timespec};

/// A function of type `F`.
pub(crate) struct Real<F> {
    at: AtomicPtr<c_void>,
    name: &'static CStr,
    /// The version to prefer: the C library has older functions of the same name with another data structure.
    version: Option<&'static CStr>,
    kind: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { at: AtomicPtr::new(null_mut()), name, version: None, kind: PhantomData }
    }

    const fn versioned(name: &'static CStr, version: &'static CStr) -> Self {
        Self { at: AtomicPtr::new(null_mut()), name, version: Some(version), kind: PhantomData }
    }

    /// The function.
    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            at = self.find();
        }
        // SAFETY: the name and the type belong together in the list below, and a pointer to a function has the size of any.
        unsafe { mem::transmute_copy(&at) }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        let mut at = null_mut();
        if let (Some(version), Some(dlvsym)) = (self.version, dlvsym()) {
            // SAFETY: two strings that end in zero.
            at = unsafe { dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) };
        }
        if at.is_null() {
            // SAFETY: a string that ends in zero.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        }
        if at.is_null() {
            at = missing as *mut c_void;
        }
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

extern "C" fn missing() -> c_int {
    libc::ENOSYS
}

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The C library's, if it has one: musl has none, and a name that can't be found would keep the program from starting.
fn dlvsym() -> Option<Dlvsym> {
    let at: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads an address from the table that the loader filled.
    unsafe {
        core::arch::asm!(
            ".weak dlvsym",
            "mov {}, qword ptr [rip + dlvsym@GOTPCREL]",
            out(reg) at,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads an address from the table that the loader filled.
    unsafe {
        core::arch::asm!(
            ".weak dlvsym",
            "adrp {0}, :got:dlvsym",
            "ldr {0}, [{0}, :got_lo12:dlvsym]",
            out(reg) at,
            options(nostack, readonly, preserves_flags)
        );
    }
    // SAFETY: null is None, anything else is the function.
    unsafe { mem::transmute::<usize, Option<Dlvsym>>(at) }
}

/// Whether this is the C library whose data structures are known here.
pub(crate) fn is_glibc() -> bool {
    // SAFETY: a string that ends in zero.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()).is_null() }
}

/// Whatever lock a function is about.
pub(crate) type Lock = *mut c_void;
type OfLock = unsafe extern "C" fn(Lock) -> c_int;
type OfLockUntil = unsafe extern "C" fn(Lock, *const timespec) -> c_int;
type OfLockUntilClock = unsafe extern "C" fn(Lock, clockid_t, *const timespec) -> c_int;
type Init = unsafe extern "C" fn(Lock, *const c_void) -> c_int;
// These can be cancelled: the unwinder passes through whoever calls them.
type Wait = unsafe extern "C-unwind" fn(Lock) -> c_int;
type WaitUntil = unsafe extern "C-unwind" fn(Lock, *const timespec) -> c_int;
type WaitUntilClock = unsafe extern "C-unwind" fn(Lock, clockid_t, *const timespec) -> c_int;
type ConditionWait = unsafe extern "C-unwind" fn(Lock, Lock) -> c_int;
type ConditionWaitUntil = unsafe extern "C-unwind" fn(Lock, Lock, *const timespec) -> c_int;
type ConditionWaitUntilClock = unsafe extern "C-unwind" fn(Lock, Lock, clockid_t, *const timespec) -> c_int;
/// A handler that runs if a thread is cancelled below the frame that holds the buffer.
pub(crate) type Cleanup = unsafe extern "C" fn(*mut c_void);

macro_rules! functions {
    ($($constant:ident: $kind:ty = $name:literal $(from $version:literal)?;)*) => {
        $(pub(crate) static $constant: Real<$kind> = functions!(@ $name $($version)?);)*
    };
    (@ $name:literal) => { Real::new($name) };
    (@ $name:literal $version:literal) => { Real::versioned($name, $version) };
}

functions! {
    MUTEX_INIT: Init = c"pthread_mutex_init";
    MUTEX_DESTROY: OfLock = c"pthread_mutex_destroy";
    MUTEX_LOCK: OfLock = c"pthread_mutex_lock";
    MUTEX_TRYLOCK: OfLock = c"pthread_mutex_trylock";
    MUTEX_TIMEDLOCK: OfLockUntil = c"pthread_mutex_timedlock";
    MUTEX_CLOCKLOCK: OfLockUntilClock = c"pthread_mutex_clocklock";
    MUTEX_UNLOCK: OfLock = c"pthread_mutex_unlock";

    RWLOCK_INIT: Init = c"pthread_rwlock_init";
    RWLOCK_DESTROY: OfLock = c"pthread_rwlock_destroy";
    RWLOCK_RDLOCK: OfLock = c"pthread_rwlock_rdlock";
    RWLOCK_TRYRDLOCK: OfLock = c"pthread_rwlock_tryrdlock";
    RWLOCK_TIMEDRDLOCK: OfLockUntil = c"pthread_rwlock_timedrdlock";
    RWLOCK_CLOCKRDLOCK: OfLockUntilClock = c"pthread_rwlock_clockrdlock";
    RWLOCK_WRLOCK: OfLock = c"pthread_rwlock_wrlock";
    RWLOCK_TRYWRLOCK: OfLock = c"pthread_rwlock_trywrlock";
    RWLOCK_TIMEDWRLOCK: OfLockUntil = c"pthread_rwlock_timedwrlock";
    RWLOCK_CLOCKWRLOCK: OfLockUntilClock = c"pthread_rwlock_clockwrlock";
    RWLOCK_UNLOCK: OfLock = c"pthread_rwlock_unlock";

    SPIN_INIT: unsafe extern "C" fn(Lock, c_int) -> c_int = c"pthread_spin_init";
    SPIN_DESTROY: OfLock = c"pthread_spin_destroy";
    SPIN_LOCK: OfLock = c"pthread_spin_lock";
    SPIN_TRYLOCK: OfLock = c"pthread_spin_trylock";
    SPIN_UNLOCK: OfLock = c"pthread_spin_unlock";

    COND_INIT: Init = c"pthread_cond_init" from c"GLIBC_2.3.2";
    COND_DESTROY: OfLock = c"pthread_cond_destroy" from c"GLIBC_2.3.2";
    COND_WAIT: ConditionWait = c"pthread_cond_wait" from c"GLIBC_2.3.2";
    COND_TIMEDWAIT: ConditionWaitUntil = c"pthread_cond_timedwait" from c"GLIBC_2.3.2";
    COND_CLOCKWAIT: ConditionWaitUntilClock = c"pthread_cond_clockwait";

    BARRIER_INIT: unsafe extern "C" fn(Lock, *const c_void, c_uint) -> c_int = c"pthread_barrier_init";
    BARRIER_DESTROY: OfLock = c"pthread_barrier_destroy";
    BARRIER_WAIT: OfLock = c"pthread_barrier_wait";

    SEM_INIT: unsafe extern "C" fn(Lock, c_int, c_uint) -> c_int = c"sem_init";
    SEM_DESTROY: OfLock = c"sem_destroy";
    SEM_WAIT: Wait = c"sem_wait";
    SEM_TRYWAIT: OfLock = c"sem_trywait";
    SEM_TIMEDWAIT: WaitUntil = c"sem_timedwait";
    SEM_CLOCKWAIT: WaitUntilClock = c"sem_clockwait";
    SEM_POST: OfLock = c"sem_post";

    MTX_INIT: unsafe extern "C" fn(Lock, c_int) -> c_int = c"mtx_init";
    MTX_DESTROY: unsafe extern "C" fn(Lock) = c"mtx_destroy";
    CND_INIT: OfLock = c"cnd_init";
    CND_DESTROY: unsafe extern "C" fn(Lock) = c"cnd_destroy";

    SETNAME: unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int = c"pthread_setname_np";
    PRCTL: unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int = c"prctl";

    CLOCK_GETTIME: unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int = c"clock_gettime";
    TESTCANCEL: unsafe extern "C-unwind" fn() = c"pthread_testcancel";
    CLEANUP_PUSH: unsafe extern "C" fn(*mut c_void, Cleanup, *mut c_void) = c"_pthread_cleanup_push";
    CLEANUP_POP: unsafe extern "C" fn(*mut c_void, c_int) = c"_pthread_cleanup_pop";
    KEY_CREATE: unsafe extern "C" fn(*mut c_uint, Option<Cleanup>) -> c_int = c"pthread_key_create";
    SETSPECIFIC: unsafe extern "C" fn(c_uint, *const c_void) -> c_int = c"pthread_setspecific";
}
