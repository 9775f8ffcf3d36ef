//! The interposed symbols. Each consists of a few instructions that put the return address and the frame
//! pointer into the registers after the arguments (a `walk::Caller`), and jump to the function that does the
//! work. So it does not matter how the compiler uses the frame pointer in this library.
//!
//! The modules of the kinds of locks declare their symbols by [`forward`] and [`interpose`], each together
//! with the next library's function. Symbols that need no caller are declared here.

use crate::{exec, exit, lock_memory, real, restrictions, thread};

/// Exports symbols that jump to a function with one to four arguments, all in registers, and the caller.
macro_rules! entry {
    ([$($symbol:ident)+] $arguments:tt $function:path) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $symbol() {
            $crate::entry::entry!(@ $arguments $function)
        }
    )+ };
    (@ ($a:ty) $function:path) => { $crate::entry::entry!(@@ "rsi" "rdx" "x1" "x2" $function) };
    (@ ($a:ty, $b:ty) $function:path) => { $crate::entry::entry!(@@ "rdx" "rcx" "x2" "x3" $function) };
    (@ ($a:ty, $b:ty, $c:ty) $function:path) => { $crate::entry::entry!(@@ "rcx" "r8" "x3" "x4" $function) };
    (@ ($a:ty, $b:ty, $c:ty, $d:ty) $function:path) => { $crate::entry::entry!(@@ "r8" "r9" "x4" "x5" $function) };
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

/// Declares interposed functions: `REAL: SYMBOL / ALIAS = ABI fn(TYPES) from VERSION => FUNCTION;`. REAL
/// becomes the next library's function, and the symbols jump to FUNCTION, which has the caller as one more
/// argument.
macro_rules! interpose {
    ($($real:ident: $symbol:ident $(/ $alias:ident)* = $abi:literal fn $types:tt $(from $version:literal)? => $function:path;)+) => { $(
        pub(crate) static $real: $crate::real::Real<unsafe extern $abi fn $types -> core::ffi::c_int> =
            $crate::real::Real::new($crate::real::name(concat!(stringify!($symbol), "\0"))) $(.from($version))?;
        const _: () = { $crate::entry::entry!([$symbol $($alias)*] $types $function); };
    )+ };
}

/// Declares interposed functions that are forwarded unchanged and recorded by a function of `call`:
/// `REAL: SYMBOL / ALIAS(LOCK, ARGUMENTS) from VERSION => initialize(API);`.
macro_rules! forward {
    ($($real:ident: $symbol:ident $(/ $alias:ident)* ($($argument:tt)*) $(from $version:literal)? => $record:ident $what:tt;)+) => {
        $($crate::entry::forward!(@ $real [$symbol $($alias)*] ($($argument)*) [$($version)?] $record $what);)+
    };
    (@ $real:ident [$symbol:ident $($alias:ident)*] ($lock:ident: $lock_type:ty $(, $argument:ident: $type:ty)*)
        [$($version:literal)?] $record:ident ($($what:expr),+)) => {
        pub(crate) static $real: $crate::real::Real<unsafe extern "C" fn($lock_type $(, $type)*) -> core::ffi::c_int> =
            $crate::real::Real::new($crate::real::name(concat!(stringify!($symbol), "\0"))) $(.from($version))?;
        const _: () = {
            unsafe extern "C" fn forward(
                $lock: $lock_type, $($argument: $type,)* caller: $crate::walk::Caller
            ) -> core::ffi::c_int {
                // SAFETY: forwarded unchanged.
                unsafe { $crate::call::$record(caller, $($what,)+ $lock, || $real.get()($lock $(, $argument)*)) }
            }
            $crate::entry::entry!([$symbol $($alias)*] ($lock_type $(, $type)*) forward);
        };
    };
}

pub(crate) use {entry, forward, interpose};

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
    pthread_setname_np = thread::set_name;
    prctl = thread::prctl;
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

/// `NAME = FUNCTION;` for functions with a variable number of arguments after the first. FUNCTION gets the
/// address of these arguments as its second one: those in registers are pushed below those on the stack.
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
    execl = exec::execv;
    execlp = exec::execvp;
    execle = exec::execle;
}

/// `NAME = FUNCTION;` for functions with up to two arguments that continue in the function whose address
/// FUNCTION returns. They have no frame here, so that a cancellation finds what it finds without the library.
macro_rules! interpose_and_continue {
    ($($name:ident = $function:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, non_snake_case, reason = "tests are not interposed"))]
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
    _exit = exit::before_exit;
    _Exit = exit::before_exit;
    system = exec::before_system;
    popen = exec::before_popen;
}
