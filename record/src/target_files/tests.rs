//! Files of several users, asked for together.

use std::thread;

use super::*;
use crate::maps;

/// A user that is not the one of the tests.
const OTHER: u32 = 64201;

#[test]
fn a_file_that_is_not_waited_for_takes_no_names_from_one_that_was_loaded_before() {
    let pid = std::process::id();
    let mapped = maps::parse(&maps::read(pid).unwrap());
    let function = path_of as *const () as u64;
    let program = mapped.iter().find(|mapping| (mapping.start..mapping.end).contains(&function)).unwrap();
    let libc = mapped.iter().find(|mapping| mapping.executable && mapping.path.contains("/libc.so")).unwrap();
    let stop = Stop::new();
    let mut files = TargetFiles::until(stop.clone());
    let own = files.open(FileOwner::of(pid), program).unwrap();
    let of_other = files.open(FileOwner { pid, uid: OTHER }, libc).unwrap();
    files.users.entry(OTHER).or_default().strikes = 1;
    stop.request("interrupted");
    stop.set_ended();
    thread::sleep(MAX_AFTER_STOP_AND_STRIKE);

    let named = files.symbols(&[(own, function - program.start + program.offset), (of_other, libc.offset)]);
    assert!(named[0].iter().any(|frame| frame.name.ends_with("path_of")), "{named:?}");
    assert!(named[1].is_empty(), "{named:?}");
}
