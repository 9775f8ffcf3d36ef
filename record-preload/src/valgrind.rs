//! Whether the program runs in valgrind. Its tools watch each access to memory, and report what this library
//! reads of the program's stack and shares with klock. So nothing is recorded there; times would mean nothing
//! anyway.

/// Asks valgrind. On a processor, the instructions do nothing.
pub(crate) fn is_running() -> bool {
    /// `VG_USERREQ__RUNNING_ON_VALGRIND` (`valgrind.h`).
    const RUNNING: usize = 0x1001;
    let request = [RUNNING, 0, 0, 0, 0, 0];
    let mut answer = 0_usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rotations add up to twice the size of the register, and the exchange has no effect;
    // valgrind reads the request.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const request,
            inout("rdx") answer,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            inout("x3") 0_usize => answer,
            in("x4") &raw const request,
            options(nostack)
        );
    }
    answer != 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_does_not_answer() {
        assert!(!super::is_running());
    }
}
