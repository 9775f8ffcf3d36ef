//! The names that a program calls. Each is a few instructions that note who called, where it returns to and its frame pointer,
//! in the registers behind its arguments, and go on to the function that does the work, as if that had been called: so what
//! the compiler does with the frame pointer here does not matter.

use crate::{barrier, c11, condition, mutex, name, rwlock, semaphore, spin};

/// `NAME = FUNCTION, ARGUMENTS;`: one to four arguments, all in registers.
macro_rules! interpose {
    ($($name:ident = $function:path, $arguments:tt;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "the tests are a program of their own, whose locks are not recorded"))]
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
    // The same by names that old programs and libraries know.
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

    mtx_init = c11::mtx_init, 2;
    mtx_destroy = c11::mtx_destroy, 1;
    mtx_lock = c11::mtx_lock, 1;
    mtx_trylock = c11::mtx_trylock, 1;
    mtx_timedlock = c11::mtx_timedlock, 2;
    mtx_unlock = c11::mtx_unlock, 1;
    cnd_init = c11::cnd_init, 1;
    cnd_destroy = c11::cnd_destroy, 1;
    cnd_wait = c11::cnd_wait, 2;
    cnd_timedwait = c11::cnd_timedwait, 3;

    pthread_setname_np = name::set, 2;
}

/// `prctl`, whose five arguments leave no room for who called, which does not matter either.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "the tests are a program of their own"))]
#[unsafe(naked)]
unsafe extern "C" fn prctl() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {function}", function = sym name::control);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {function}", function = sym name::control);
}
