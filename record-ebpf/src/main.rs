#![no_std]
#![no_main]
#[cfg(target_arch="bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
