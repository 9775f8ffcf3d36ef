//! The interposed functions of the next library, which is the C library or another interposer. Each is looked
//! up at its first use, because constructors of other libraries run before ours, and allocators may lock
//! during a lookup. A missing function is replaced by one that returns ENOSYS. Also the environment, which
//! the C library keeps.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use libc::{clockid_t, timespec};

/// A function of type `F`, looked up on demand.
pub(crate) struct Real<F> {
    at: AtomicPtr<c_void>,
    name: &'static CStr,
    /// The preferred symbol version. The C library has older functions of the same name with other data
    /// structures. A function of another interposer has no version and is preferred to both.
    version: Option<&'static CStr>,
    /// Whether other interposers are skipped.
    is_own: bool,
    kind: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { at: AtomicPtr::new(null_mut()), name, version: None, is_own: false, kind: PhantomData }
    }

    /// The function with a preferred version.
    pub(crate) const fn from(self, version: &'static CStr) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The C library's own function, which its other functions call.
    const fn own(name: &'static CStr, version: &'static CStr) -> Self {
        Self { is_own: true, ..Self::new(name).from(version) }
    }

    /// Returns the function.
    #[inline(always)]
    pub(crate) fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            at = self.find();
        }
        // SAFETY: the list below gives each name its type, and `F` has the size of a pointer.
        unsafe { mem::transmute_copy(&at) }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        // SAFETY: the string is null-terminated.
        let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if let Some(preferred) = self.version.and_then(|version| versioned(self.name, version))
            && at != preferred
            && (self.is_own || at.is_null() || Some(at) == versioned(self.name, FIRST_VERSION))
        {
            at = preferred;
        }
        if at.is_null() {
            at = missing as *mut c_void;
        }
        self.at.store(at, Ordering::Relaxed);
        at
    }

    /// Whether the next library with the function is not the C library, but another interposer. For functions
    /// of the oldest version of the C library. Looks up; not for each call.
    #[cold]
    pub(crate) fn is_interposed(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let at = if at.is_null() { self.find() } else { at };
        versioned(self.name, FIRST_VERSION).is_some_and(|own| own != at)
    }
}

/// The version of the oldest functions of the C library.
const FIRST_VERSION: &CStr = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.2.5" };

/// The version of the functions of the present condition variables.
const CONDITION_VERSION: &CStr = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.3.2" };

/// Returns the next function of a name and a version. Interposers, whose functions have no version, are
/// skipped.
fn versioned(name: &CStr, version: &CStr) -> Option<*mut c_void> {
    // SAFETY: both strings are null-terminated.
    let at = unsafe { dlvsym()?(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
    (!at.is_null()).then_some(at)
}

extern "C" fn missing() -> c_int {
    libc::ENOSYS
}

type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Returns `dlvsym` if the C library has it. Weak, because musl lacks it, and a missing symbol would prevent
/// program start.
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
    // SAFETY: null is `None`, any other value is the function.
    unsafe { mem::transmute::<usize, Option<Dlvsym>>(at) }
}

/// Whether the C library is glibc, whose data structures this library knows.
pub(crate) fn is_glibc() -> bool {
    // SAFETY: the string is null-terminated.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()).is_null() }
}

/// Returns the name of a function, given with its terminating zero.
pub(crate) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

/// A pointer to a lock of any kind.
pub(crate) type Lock = *mut c_void;
pub(crate) type LockOnly = unsafe extern "C" fn(Lock) -> c_int;
/// A null-terminated list of strings.
pub(crate) type Strings = *const *const c_char;
type Exec = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type Spawn =
    unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;
/// A cleanup handler or destructor.
pub(crate) type Cleanup = unsafe extern "C" fn(*mut c_void);

/// A function that is jumped to with the arguments of its caller.
pub(crate) type Forwarded = unsafe extern "C" fn();

type Syscall = unsafe extern "C" fn(i64, usize, usize, usize, usize, usize, usize) -> i64;

/// The address of `syscall`, which the interposed function jumps to.
pub(crate) static SYSCALL_ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns `syscall`, and stores its address.
pub(crate) fn syscall() -> Syscall {
    let function = SYSCALL.get();
    SYSCALL_ADDRESS.store(function as *mut c_void, Ordering::Relaxed);
    function
}

/// Looks up the functions that programs call between vfork and exec, when a lookup might disturb the parent.
pub(crate) fn find_exec_functions() {
    EXECVE.get();
    EXECVPE.get();
    FEXECVE.get();
    EXECVEAT.get();
    syscall();
}

macro_rules! functions {
    ($($constant:ident: $kind:ty = $name:literal $(from $version:literal)?;)*) => {
        $(pub(crate) static $constant: Real<$kind> = Real::new($name) $(.from($version))?;)*
    };
}

functions! {
    MTX_DESTROY: unsafe extern "C" fn(Lock) = c"mtx_destroy";
    CND_DESTROY: unsafe extern "C" fn(Lock) = c"cnd_destroy";
    SELF: unsafe extern "C" fn() -> Lock = c"pthread_self";
    CPU_CLOCK_OF: unsafe extern "C" fn(Lock, *mut clockid_t) -> c_int = c"pthread_getcpuclockid";
    SETNAME: unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int = c"pthread_setname_np";
    PRCTL: unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int = c"prctl";

    SYSCALL: Syscall = c"syscall";
    MLOCKALL: unsafe extern "C" fn(c_int) -> c_int = c"mlockall";
    MUNLOCKALL: unsafe extern "C" fn() -> c_int = c"munlockall";
    EXECVE: Exec = c"execve";
    EXECVPE: Exec = c"execvpe";
    FEXECVE: unsafe extern "C" fn(c_int, Strings, Strings) -> c_int = c"fexecve";
    EXECVEAT: unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int = c"execveat";
    POSIX_SPAWN: Spawn = c"posix_spawn" from c"GLIBC_2.15";
    POSIX_SPAWNP: Spawn = c"posix_spawnp" from c"GLIBC_2.15";
    SYSTEM: Forwarded = c"system";
    EXIT: Forwarded = c"_exit";
    POPEN: Forwarded = c"popen";

    CLOCK_GETTIME: unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int = c"clock_gettime";
    TESTCANCEL: unsafe extern "C-unwind" fn() = c"pthread_testcancel";
    CLEANUP_PUSH: unsafe extern "C" fn(*mut c_void, Cleanup, *mut c_void) = c"_pthread_cleanup_push";
    CLEANUP_POP: unsafe extern "C" fn(*mut c_void, c_int) = c"_pthread_cleanup_pop";
    KEY_CREATE: unsafe extern "C" fn(*mut c_uint, Option<Cleanup>) -> c_int = c"pthread_key_create";
    SETSPECIFIC: unsafe extern "C" fn(c_uint, *const c_void) -> c_int = c"pthread_setspecific";
}

// For the functions of `threads.h`.
pub(crate) static OWN_MUTEX_LOCK: Real<LockOnly> = Real::own(c"pthread_mutex_lock", FIRST_VERSION);
pub(crate) static OWN_MUTEX_TRYLOCK: Real<LockOnly> = Real::own(c"pthread_mutex_trylock", FIRST_VERSION);
pub(crate) static OWN_MUTEX_TIMEDLOCK: Real<unsafe extern "C" fn(Lock, *const timespec) -> c_int> =
    Real::own(c"pthread_mutex_timedlock", FIRST_VERSION);
pub(crate) static OWN_MUTEX_UNLOCK: Real<LockOnly> = Real::own(c"pthread_mutex_unlock", FIRST_VERSION);
pub(crate) static OWN_COND_WAIT: Real<unsafe extern "C-unwind" fn(Lock, Lock) -> c_int> =
    Real::own(c"pthread_cond_wait", CONDITION_VERSION);
pub(crate) static OWN_COND_TIMEDWAIT: Real<
    unsafe extern "C-unwind" fn(Lock, Lock, *const timespec) -> c_int,
> = Real::own(c"pthread_cond_timedwait", CONDITION_VERSION);
pub(crate) static OWN_JOIN: Real<unsafe extern "C-unwind" fn(Lock, *mut *mut c_void) -> c_int> =
    Real::own(c"pthread_join", FIRST_VERSION);

unsafe extern "C" {
    static mut environ: *mut *const c_char;
}

/// Returns the program's environment, null or null-terminated.
pub(crate) fn environment() -> *mut *const c_char {
    // SAFETY: reads the C library's variable, as its own functions do.
    unsafe { environ }
}

/// Returns the value of a variable of the environment.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut entry = environment();
    // SAFETY: null or a null-terminated list of strings.
    unsafe {
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}
