//! Names of this process and of the running kernel, looked up as in a recording.

use std::sync::Arc;

use trace_format::{Frame, LockId, LockKind, Stack, StackId};

use super::{
    CertainFrames::{ByPointers, Unwound},
    FoundLock, Incarnation, RawFrames, Resolved, Symbols,
    request::recording_frames,
};
use crate::{
    compose::{
        locks::{NewLock, Space},
        tasks::ProcessKey,
    },
    names::kernel_addresses::KernelAddresses,
    system::clocks,
};

// A function that keeps a frame pointer from its fifth byte on, and one that keeps none.
std::arch::global_asm!(
    ".type klock_test_framed, @function",
    "klock_test_framed:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "nop",
    "nop",
    "nop",
    "nop",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size klock_test_framed, . - klock_test_framed",
    ".type klock_test_frameless, @function",
    "klock_test_frameless:",
    ".cfi_startproc",
    "nop",
    "nop",
    "ret",
    ".cfi_endproc",
    ".size klock_test_frameless, . - klock_test_frameless",
);

unsafe extern "C" {
    fn klock_test_framed();
    fn klock_test_frameless();
}

#[test]
fn frames_by_frame_pointers_are_certain_as_long_as_each_callee_keeps_one() {
    let framed = klock_test_framed as *const () as u64 + 6;
    let frameless = klock_test_frameless as *const () as u64 + 1;
    let guessed = |user: &[u64], certain| {
        let resolved = resolve(|symbols| {
            symbols.read_mappings(std::process::id());
            let incarnation = Some(myself(0));
            let raw = RawFrames { user: user.to_vec(), certain, incarnation, ..RawFrames::default() };
            symbols.resolve_stack(StackId(0), raw);
        });
        resolved.stacks[0].to_stack().frames.iter().map(|frame| frame.guessed).collect::<Vec<_>>()
    };
    let stack = [framed, framed, frameless, framed, framed];
    assert_eq!(guessed(&stack, ByPointers(1)), [false, false, false, true, true]);
    assert_eq!(guessed(&stack[2..], ByPointers(1)), [false, true, true]);
    // The caller was on top of the stack.
    assert_eq!(guessed(&stack[2..], ByPointers(2)), [false, false, false]);
    assert_eq!(guessed(&stack, Unwound(2)), [false, false, true, true, true]);
    assert_eq!(guessed(&[framed], ByPointers(0)), [true], "a leaf without its caller");
    assert_eq!(guessed(&[framed, 0x1234, framed], ByPointers(1)), [false, false, true]);
}

#[inline(never)]
fn landmark() -> u32 {
    std::hint::black_box(line!())
}

fn myself(since_ns: i64) -> Incarnation {
    Incarnation { process: ProcessKey(0), pid: std::process::id(), since_ns }
}

/// Resolves. A file that cannot be read in time has no names; on a machine whose disk is busy, it is tried
/// again.
fn resolve(requests: impl Fn(&Symbols)) -> Resolved {
    let mut tried = (0..5).map(|_| {
        let symbols = Symbols::start(None, KernelAddresses::new(true), None, crate::Stop::new()).unwrap();
        requests(&symbols);
        symbols.finish(&mut |_, _| ()).unwrap()
    });
    tried.find(|resolved| resolved.warning.is_none()).expect("every file is read in one of five tries")
}

#[test]
fn a_function_of_this_process_is_found_with_file_and_line() {
    let line = landmark();
    let leaf = landmark as fn() -> u32 as usize as u64;
    let resolved = resolve(|symbols| {
        symbols.read_mappings(std::process::id());
        let raw =
            RawFrames { user: vec![leaf, leaf + 1], incarnation: Some(myself(0)), ..RawFrames::default() };
        symbols.resolve_stack(StackId(0), raw);
    });
    let Stack { frames, .. } = resolved.stacks[0].to_stack();
    // In an optimised build, `black_box` is inlined into `landmark`; the function itself is the outer frame.
    let itself = |address| frames.iter().find(|f| f.address == Some(address) && !f.inlined).unwrap();
    let (first, last) = (itself(leaf), itself(leaf + 1));
    assert!(first.symbol.as_deref().is_some_and(|s| s.contains("landmark")), "{first:?}");
    assert!(first.file.as_deref().is_some_and(|f| f.ends_with("symbols/tests.rs")), "{first:?}");
    assert!(first.line.is_some_and(|l| l.abs_diff(line as i32) <= 2), "{first:?}");
    assert_eq!(first.symbol_offset, Some(0));
    // The second address is a return address, so it is looked up one byte before, but keeps its own offsets.
    assert_eq!((last.address, last.symbol_offset), (Some(leaf + 1), Some(1)));
    assert_eq!(last.symbol, first.symbol);
    assert!(first.module.is_some() && first.offset.is_some());
}

#[test]
fn mappings_after_an_exec_do_not_apply_to_earlier_frames() {
    let leaf = landmark as fn() -> u32 as usize as u64;
    let now = clocks::monotonic_ns();
    let resolved = resolve(|symbols| {
        symbols.end_incarnation(std::process::id(), now);
        symbols.read_mappings(std::process::id());
        let raw = |incarnation| RawFrames {
            user: vec![leaf],
            incarnation: Some(incarnation),
            ..RawFrames::default()
        };
        symbols.resolve_stack(StackId(0), raw(myself(0)));
        symbols.resolve_stack(StackId(1), raw(Incarnation { process: ProcessKey(1), ..myself(now) }));
    });
    assert_eq!(resolved.stacks[0].to_stack().frames[0].module, None);
    assert!(resolved.stacks[1].to_stack().frames[0].module.is_some());
}

#[test]
fn frames_between_a_tracepoint_and_klocks_program_are_removed() {
    let frame = |symbol: Option<&str>| -> Arc<[Frame]> {
        [Frame { symbol: symbol.map(str::to_owned), ..Frame::default() }].into()
    };
    let stack = [None, Some("bpf_trace_run2"), Some("mutex_lock"), Some("vfs_write")].map(frame);
    assert_eq!(recording_frames(&stack), 2);
    assert_eq!(recording_frames(&stack[2..]), 0);
}

#[test]
fn frames_of_a_process_that_has_ended_keep_their_addresses() {
    let ended = Incarnation { process: ProcessKey(0), pid: u32::MAX >> 1, since_ns: 0 };
    let resolved = resolve(|symbols| {
        let raw = RawFrames { user: vec![0x1234], incarnation: Some(ended), ..RawFrames::default() };
        symbols.resolve_stack(StackId(0), raw);
    });
    let bare = Frame { address: Some(0x1234), ..Frame::default() };
    assert_eq!(resolved.stacks[0].to_stack().frames, [bare]);
}

#[test]
fn a_static_lock_of_a_process_has_the_name_of_its_variable() {
    static LOCK_OF_THIS_TEST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let address = std::ptr::from_ref(&LOCK_OF_THIS_TEST) as u64;
    let resolved = resolve(|symbols| {
        let space = Space::Process(ProcessKey(0), std::process::id());
        let new = |id, address| NewLock { id: LockId(id), space, address, kind: LockKind::Futex };
        symbols.name_lock(new(3, address), 0);
        symbols.name_lock(new(4, 0x10), 0);
    });
    let [FoundLock { lock: LockId(3), name: Some(name), shared: None }] = &resolved.locks[..] else {
        panic!("{:?}", resolved.locks)
    };
    assert!(name.ends_with("LOCK_OF_THIS_TEST"), "{name}");
}

#[test]
fn code_in_anonymous_memory_has_a_module_and_data_has_none() {
    let page = |access| {
        // SAFETY: the kernel chooses an unused address; the page stays mapped.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    };
    let (code, data) = (page(libc::PROT_READ | libc::PROT_EXEC), page(libc::PROT_READ | libc::PROT_WRITE));
    let on_stack = (&raw const code) as u64;
    let resolved = resolve(|symbols| {
        symbols.read_mappings(std::process::id());
        let user = vec![code + 8, data + 8, on_stack, 0x8_0000_0000];
        symbols.resolve_stack(
            StackId(0),
            RawFrames { user, incarnation: Some(myself(0)), ..RawFrames::default() },
        );
    });
    let Stack { frames, .. } = resolved.stacks[0].to_stack();
    let modules: Vec<_> = frames.iter().map(|frame| frame.module.as_deref()).collect();
    assert_eq!(modules, [Some("[anon]"), None, None, None]);
}

#[test]
fn a_lock_in_memory_that_processes_share_has_the_same_place_at_each_of_its_addresses() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let map = |kind, offset| {
        let (access, descriptor) =
            (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&file));
        // SAFETY: the kernel chooses an unused address; the pages stay mapped.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, descriptor, offset) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    };
    let addresses = [
        map(libc::MAP_SHARED, 0) + 8,
        map(libc::MAP_SHARED, 0) + 8,
        map(libc::MAP_SHARED, 4096),
        map(libc::MAP_PRIVATE, 0),
    ];
    let resolved = resolve(|symbols| {
        symbols.read_mappings(std::process::id());
        for (id, address) in addresses.into_iter().enumerate() {
            let Incarnation { process, pid, since_ns } = myself(0);
            let (id, space) = (LockId(id as i32), Space::Process(process, pid));
            symbols.name_lock(NewLock { id, space, address, kind: LockKind::PthreadMutex }, since_ns);
        }
    });
    let place = |id| resolved.locks.iter().find(|found| found.lock == LockId(id))?.shared.clone();
    let first = place(0).unwrap();
    assert!(first.ends_with("+0x8"), "{first}");
    assert_eq!((place(1).as_ref(), place(3)), (Some(&first), None));
    assert_eq!(place(2).unwrap(), first.replace("+0x8", "+0x1000"));
}

#[test]
fn a_lock_whose_memory_is_mapped_after_it_was_named_gets_its_place() {
    /// Where nothing is mapped.
    const FREE: u64 = 0x5000_0000_0000;
    static NAMED_LATER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let resolved = resolve(|symbols| {
        let Incarnation { process, pid, since_ns } = myself(0);
        let space = Space::Process(process, pid);
        // SAFETY: nothing uses what an earlier attempt mapped there.
        unsafe { libc::munmap(FREE as *mut _, 4096) };
        symbols.set_watermark(i64::MAX);
        let new = |id, address| NewLock { id: LockId(id), space, address, kind: LockKind::PthreadMutex };
        symbols.name_lock(new(0, FREE + 8), since_ns);
        symbols.name_lock(new(1, std::ptr::from_ref(&NAMED_LATER) as u64), since_ns);
        // Locks are named in their order, and one without a name is not counted.
        while symbols.found() == 0 {
            std::thread::yield_now();
        }
        let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
        // SAFETY: the address is free, or the call fails.
        let at = unsafe {
            libc::mmap(FREE as *mut _, 4096, access, kind, std::os::fd::AsRawFd::as_raw_fd(&file), 0)
        };
        assert_eq!(at as u64, FREE);
        symbols.read_mappings(pid);
    });
    let shared = resolved.locks.iter().find_map(|found| found.shared.as_deref());
    assert!(shared.is_some_and(|place| place.ends_with("+0x8")), "{:?}", resolved.locks);
}
