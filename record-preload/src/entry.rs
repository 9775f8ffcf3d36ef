//! The interposed symbols. Each consists of a few instructions that put the return address and the frame pointer into the
//! registers after the arguments (a `walk::Caller`), and jump to the function that does the work. So it does
//! not matter how the compiler uses the frame pointer in this library.

use crate::{
    barrier, c11, condition, exec, join, lock_memory, mutex, name, real, restrictions, rwlock, semaphore,
    spin,
};

/// `NAME = FUNCTION, ARGUMENTS;` with one to four arguments, all in registers.
macro_rules! interpose {
    ($($name:ident = $function:path, $arguments:tt;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            interpose!(@ $arguments $function)
        }
    )* };
    (@ 1 $function:path) => { interpose!(@@ "rsi" "rdx" "x1" "x2" $function) };
    (@ 2 $function:path) => { interpose!(@@ "rdx" "rcx" "x2" "x3" $function) };
    (@ 3 $function:path) => { interpose!(@@ "rcx" "r8" "x3" "x4" $function) };
    (@ 4 $function:path) => { interpose!(@@ "r8" "r9" "x4" "x5" $function) };
    (@@ $return_address:literal $frame_pointer:literal $link:literal $frame:literal $function:path) => {{
        #[cfg(target_arch = "x86_64")]
        core::arch::naked_asm!(
            concat!("mov ", $return_address, ", qword ptr [rsp]"),
            concat!("mov ", $frame_pointer, ", rbp"),
            "jmp {function}",
            function = sym $function
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::naked_asm!(
            concat!("mov ", $link, ", x30"),
            concat!("mov ", $frame, ", x29"),
            "b {function}",
            function = sym $function
        );
    }};
}

interpose! {
    pthread_mutex_init = mutex::init, 2;
    pthread_mutex_destroy = mutex::destroy, 1;
    pthread_mutex_lock = mutex::lock, 1;
    pthread_mutex_trylock = mutex::trylock, 1;
    pthread_mutex_timedlock = mutex::timedlock, 2;
    pthread_mutex_clocklock = mutex::clocklock, 3;
    pthread_mutex_unlock = mutex::unlock, 1;
    // Aliases used by old programs and libraries.
    __pthread_mutex_init = mutex::init, 2;
    __pthread_mutex_destroy = mutex::destroy, 1;
    __pthread_mutex_lock = mutex::lock, 1;
    __pthread_mutex_trylock = mutex::trylock, 1;
    __pthread_mutex_unlock = mutex::unlock, 1;

    pthread_rwlock_init = rwlock::init, 2;
    pthread_rwlock_destroy = rwlock::destroy, 1;
    pthread_rwlock_rdlock = rwlock::rdlock, 1;
    pthread_rwlock_tryrdlock = rwlock::tryrdlock, 1;
    pthread_rwlock_timedrdlock = rwlock::timedrdlock, 2;
    pthread_rwlock_clockrdlock = rwlock::clockrdlock, 3;
    pthread_rwlock_wrlock = rwlock::wrlock, 1;
    pthread_rwlock_trywrlock = rwlock::trywrlock, 1;
    pthread_rwlock_timedwrlock = rwlock::timedwrlock, 2;
    pthread_rwlock_clockwrlock = rwlock::clockwrlock, 3;
    pthread_rwlock_unlock = rwlock::unlock, 1;
    __pthread_rwlock_init = rwlock::init, 2;
    __pthread_rwlock_destroy = rwlock::destroy, 1;
    __pthread_rwlock_rdlock = rwlock::rdlock, 1;
    __pthread_rwlock_tryrdlock = rwlock::tryrdlock, 1;
    __pthread_rwlock_wrlock = rwlock::wrlock, 1;
    __pthread_rwlock_trywrlock = rwlock::trywrlock, 1;
    __pthread_rwlock_unlock = rwlock::unlock, 1;

    pthread_spin_init = spin::init, 2;
    pthread_spin_destroy = spin::destroy, 1;
    pthread_spin_lock = spin::lock, 1;
    pthread_spin_trylock = spin::trylock, 1;
    pthread_spin_unlock = spin::unlock, 1;

    pthread_cond_init = condition::init, 2;
    pthread_cond_destroy = condition::destroy, 1;
    pthread_cond_signal = condition::signal, 1;
    pthread_cond_broadcast = condition::broadcast, 1;
    pthread_cond_wait = condition::wait, 2;
    pthread_cond_timedwait = condition::timedwait, 3;
    pthread_cond_clockwait = condition::clockwait, 4;

    pthread_barrier_init = barrier::init, 3;
    pthread_barrier_destroy = barrier::destroy, 1;
    pthread_barrier_wait = barrier::wait, 1;

    sem_init = semaphore::init, 3;
    sem_destroy = semaphore::destroy, 1;
    sem_wait = semaphore::wait, 1;
    sem_trywait = semaphore::trywait, 1;
    sem_timedwait = semaphore::timedwait, 2;
    sem_clockwait = semaphore::clockwait, 3;
    sem_post = semaphore::post, 1;

    pthread_create = join::create, 4;
    pthread_join = join::join, 2;
    pthread_tryjoin_np = join::tryjoin, 2;
    pthread_timedjoin_np = join::timedjoin, 3;
    pthread_clockjoin_np = join::clockjoin, 4;

    mtx_init = c11::mtx_init, 2;
    mtx_destroy = c11::mtx_destroy, 1;
    mtx_lock = c11::mtx_lock, 1;
    mtx_trylock = c11::mtx_trylock, 1;
    mtx_timedlock = c11::mtx_timedlock, 2;
    mtx_unlock = c11::mtx_unlock, 1;
    cnd_init = c11::cnd_init, 1;
    cnd_destroy = c11::cnd_destroy, 1;
    cnd_signal = c11::cnd_signal, 1;
    cnd_broadcast = c11::cnd_broadcast, 1;
    cnd_wait = c11::cnd_wait, 2;
    cnd_timedwait = c11::cnd_timedwait, 3;
    thrd_create = c11::thrd_create, 3;
    thrd_join = c11::thrd_join, 2;

    pthread_setname_np = name::set, 2;
}

/// `NAME = FUNCTION;` for functions that need no caller.
macro_rules! interpose_plain {
    ($($name:ident = $function:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {function}", function = sym $function);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {function}", function = sym $function);
        }
    )* };
}

interpose_plain! {
    prctl = name::control;
    mlockall = lock_memory::all;
    munlockall = lock_memory::none;
}

/// `syscall`. Continues in the C library at once, unless the call may restrict this library.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "mov rax, qword ptr [rip + {address}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "jmp {function}",
        prctl = const libc::SYS_prctl,
        seccomp = const libc::SYS_seccomp,
        address = sym real::SYSCALL_ADDRESS,
        function = sym restrictions::syscall
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "cmp x0, {prctl}",
        "b.eq 2f",
        "cmp x0, {seccomp}",
        "b.eq 2f",
        "adrp x16, {address}",
        "ldr x16, [x16, :lo12:{address}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "b {function}",
        prctl = const libc::SYS_prctl,
        seccomp = const libc::SYS_seccomp,
        address = sym real::SYSCALL_ADDRESS,
        function = sym restrictions::syscall
    );
}

/// `NAME = FUNCTION;` for functions with a variable number of arguments after the first. FUNCTION gets the address of these
/// arguments as its second one: those in registers are pushed below those on the stack.
macro_rules! interpose_variadic {
    ($($name:ident = $function:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {function}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                function = sym $function
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "sub sp, sp, #64",
                "str x30, [sp]",
                "stp x1, x2, [sp, #8]",
                "stp x3, x4, [sp, #24]",
                "stp x5, x6, [sp, #40]",
                "str x7, [sp, #56]",
                "add x1, sp, #8",
                "bl {function}",
                "ldr x30, [sp]",
                "add sp, sp, #64",
                "ret",
                function = sym $function
            );
        }
    )* };
}

interpose_variadic! {
    execl = exec::execl;
    execlp = exec::execlp;
    execle = exec::execle;
}

/// `NAME = FUNCTION;` for functions with up to two arguments that continue in the function whose address FUNCTION returns. They
/// have no frame here, so that a cancellation finds what it finds without the library.
macro_rules! interpose_and_continue {
    ($($name:ident = $function:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                "call {function}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                function = sym $function
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "stp x0, x1, [sp, #-32]!",
                "str x30, [sp, #16]",
                "bl {function}",
                "mov x16, x0",
                "ldr x30, [sp, #16]",
                "ldp x0, x1, [sp], #32",
                "br x16",
                function = sym $function
            );
        }
    )* };
}

interpose_and_continue! {
    system = exec::before_system;
    popen = exec::before_popen;
}
