//! Names of this very process and of the running kernel, looked up as a recording does.

use std::rc::Rc;

use trace_format::{Frame, LockId, LockKind, StackId};

use super::{Owner, RawFrames, Resolved, Symbols, worker::own_frames};
use crate::{
    clocks,
    locks::{NewLock, Space},
    tasks::ProcessKey,
};

#[inline(never)]
fn landmark() -> u32 {
    std::hint::black_box(line!())
}

fn myself(since_ns: i64) -> Owner {
    Owner { process: ProcessKey(0), pid: std::process::id(), since_ns }
}

fn resolve(orders: impl FnOnce(&Symbols)) -> Resolved {
    let symbols = Symbols::start(None).unwrap();
    orders(&symbols);
    symbols.finish().unwrap()
}

#[test]
fn a_function_of_this_process_is_found_with_file_and_line() {
    let line = landmark();
    let leaf = landmark as fn() -> u32 as usize as u64;
    let resolved = resolve(|symbols| {
        symbols.see(std::process::id());
        let raw = RawFrames { user: vec![leaf, leaf + 1], owner: Some(myself(0)), ..RawFrames::default() };
        symbols.stack(StackId(0), raw);
    });
    let frames = &resolved.stacks[0].frames;
    // An optimised landmark holds the library's black box, inlined; the function itself comes after it.
    let itself = |address| frames.iter().find(|f| f.address == Some(address) && !f.inlined).unwrap();
    let (first, last) = (itself(leaf), itself(leaf + 1));
    assert!(first.symbol.as_deref().is_some_and(|s| s.contains("landmark")), "{first:?}");
    assert!(first.file.as_deref().is_some_and(|f| f.ends_with("symbols/tests.rs")), "{first:?}");
    assert!(first.line.is_some_and(|l| l.abs_diff(line as i32) <= 2), "{first:?}");
    assert_eq!(first.symbol_offset, Some(0));
    // As an address to return to, the byte behind the beginning means the beginning, and keeps its own offsets.
    assert_eq!((last.address, last.symbol_offset), (Some(leaf + 1), Some(1)));
    assert_eq!(last.symbol, first.symbol);
    assert!(first.module.is_some() && first.offset.is_some());
}

#[test]
fn a_process_that_became_another_program_lends_no_module_to_what_it_was() {
    let leaf = landmark as fn() -> u32 as usize as u64;
    let now = clocks::monotonic_ns();
    let resolved = resolve(|symbols| {
        symbols.ended(std::process::id(), now);
        symbols.see(std::process::id());
        let raw = |since| RawFrames { user: vec![leaf], owner: Some(since), ..RawFrames::default() };
        symbols.stack(StackId(0), raw(myself(0)));
        symbols.stack(StackId(1), raw(Owner { process: ProcessKey(1), ..myself(now) }));
    });
    assert_eq!(resolved.stacks[0].frames[0].module, None);
    assert!(resolved.stacks[1].frames[0].module.is_some());
}

#[test]
fn the_way_from_a_tracepoint_to_our_program_is_no_part_of_the_stack() {
    let frame = |symbol: Option<&str>| -> Rc<[Frame]> {
        [Frame { symbol: symbol.map(str::to_owned), ..Frame::default() }].into()
    };
    let stack = [None, Some("bpf_trace_run2"), Some("mutex_lock"), Some("vfs_write")].map(frame);
    assert_eq!(own_frames(&stack), 2);
    assert_eq!(own_frames(&stack[2..]), 0);
}

#[test]
fn a_process_that_is_gone_leaves_addresses_alone() {
    let gone = Owner { process: ProcessKey(0), pid: u32::MAX >> 1, since_ns: 0 };
    let resolved = resolve(|symbols| {
        let raw = RawFrames { user: vec![0x1234], owner: Some(gone), ..RawFrames::default() };
        symbols.stack(StackId(0), raw);
    });
    let bare = Frame { address: Some(0x1234), ..Frame::default() };
    assert_eq!(resolved.stacks[0].frames, [bare]);
}

#[test]
fn a_static_lock_of_a_process_has_the_name_of_its_variable() {
    static LOCK_OF_THIS_TEST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let address = std::ptr::from_ref(&LOCK_OF_THIS_TEST) as u64;
    let resolved = resolve(|symbols| {
        let space = Space::Process(ProcessKey(0), std::process::id());
        let new = |id, address| NewLock { id: LockId(id), space, address, kind: LockKind::Futex };
        symbols.name(new(3, address), 0);
        symbols.name(new(4, 0x10), 0);
    });
    assert_eq!(resolved.names.len(), 1);
    assert_eq!(resolved.names[0].0, LockId(3));
    assert!(resolved.names[0].1.ends_with("LOCK_OF_THIS_TEST"), "{:?}", resolved.names);
}
