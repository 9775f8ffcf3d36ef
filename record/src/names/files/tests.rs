//! Files of several users, asked for together.

use std::{fs::File, io::Write as _, os::fd::AsRawFd as _, path::PathBuf, thread};

use blazesym::symbolize::{
    Input, Symbolizer,
    source::{Elf, Source},
};

use super::{limits::MAX_AFTER_STOP_AND_STRIKE, *};
use crate::system::maps;

/// A user that is not the one of the tests.
const OTHER: u32 = 64201;

/// Returns the mappings of the tests.
fn mapped() -> Vec<Mapping> {
    maps::parse(&maps::read(std::process::id()).unwrap())
}

/// Returns the code of the C library.
fn libc(mapped: &[Mapping]) -> &Mapping {
    mapped.iter().find(|mapping| mapping.executable && mapping.path.contains("/libc.so")).unwrap()
}

#[test]
fn a_file_that_is_not_waited_for_takes_no_names_from_one_that_was_loaded_before() {
    let (pid, mapped) = (std::process::id(), mapped());
    let function = path_of as *const () as u64;
    let program = mapped.iter().find(|mapping| (mapping.start..mapping.end).contains(&function)).unwrap();
    let libc = libc(&mapped);
    let stop = Stop::new();
    let mut files = TargetFiles::until(stop.clone());
    let own = files.open(FileOwner::of(pid), program).unwrap();
    let of_other = files.open(FileOwner { pid, uid: OTHER }, libc).unwrap();
    files.users.entry(OTHER).or_default().strikes = 1;
    stop.request("interrupted");
    stop.set_ended();
    thread::sleep(MAX_AFTER_STOP_AND_STRIKE);

    let named = files.symbols(&[(own, function - program.start + program.offset), (of_other, libc.offset)]);
    assert!(named[0].functions.iter().any(|frame| frame.name.ends_with("path_of")), "{named:?}");
    assert!(named[1].functions.is_empty(), "{named:?}");
}

#[test]
fn files_that_are_read_again_after_one_that_is_not_waited_for_keep_their_names() {
    let (pid, mapped) = (std::process::id(), mapped());
    let place = |address: u64| {
        let mapping = mapped.iter().find(|mapping| (mapping.start..mapping.end).contains(&address)).unwrap();
        (mapping, address - mapping.start + mapping.offset)
    };
    // SAFETY: the name is a string, and nothing is called.
    let unwind = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Unwind_GetIP".as_ptr()) };
    let places = [place(path_of as *const () as u64), place(unwind as u64)];
    let stop = Stop::new();
    let mut files = TargetFiles::until(stop.clone());
    let of_other = files.open(FileOwner { pid, uid: OTHER }, libc(&mapped)).unwrap();
    // Their own descriptors, so that each has a copy of its own.
    let mut open = |(mapping, offset): (&Mapping, u64)| {
        let file = File::open(mapping.path.as_ref()).unwrap();
        (files.add_own(&mapping.path, file).unwrap(), offset)
    };
    let wanted: Vec<_> = places.into_iter().cycle().take(12).map(&mut open).collect();
    let (early, all) = (&wanted[..5], &wanted[..]);
    let before = files.symbols(early);
    assert!(before.iter().all(|code| !code.functions.is_empty()), "{before:?}");
    files.users.entry(OTHER).or_default().strikes = 1;
    stop.request("interrupted");
    stop.set_ended();
    thread::sleep(MAX_AFTER_STOP_AND_STRIKE);

    assert!(files.symbols(&[(of_other, 0)])[0].functions.is_empty());
    for (index, named) in files.symbols(all).iter().enumerate() {
        assert_eq!(named, &before[index % 2], "file {index}");
    }
}

#[test]
fn a_library_that_a_user_without_names_mapped_first_has_names_for_the_others() {
    let (pid, mapped) = (std::process::id(), mapped());
    let libc = libc(&mapped);
    for third in [rustix::process::geteuid().as_raw(), OTHER + 1] {
        let mut files = TargetFiles::default();
        let id = files.open(FileOwner { pid, uid: OTHER }, libc).unwrap();
        files.users.entry(OTHER).or_default().strikes = MAX_STRIKES;
        assert!(files.unwind_table(id).is_none());
        assert_eq!(files.open(FileOwner { pid, uid: third }, libc).unwrap(), id);
        assert!(files.unwind_table(id).is_some());
    }
}

#[test]
fn a_library_that_was_left_out_at_the_end_is_read_for_a_user_who_is_waited_for() {
    let (pid, mapped) = (std::process::id(), mapped());
    let libc = libc(&mapped);
    let stop = Stop::new();
    let mut files = TargetFiles::until(stop.clone());
    let id = files.open(FileOwner { pid, uid: OTHER }, libc).unwrap();
    files.users.entry(OTHER).or_default().strikes = 1;
    stop.request("interrupted");
    stop.set_ended();
    thread::sleep(MAX_AFTER_STOP_AND_STRIKE);
    assert!(files.unwind_table(id).is_none());
    files.open(FileOwner::of(pid), libc).unwrap();
    assert!(files.unwind_table(id).is_some());
}

// The parser reads whatever a target maps.
fuzz_target!(elf, |bytes: &[u8]| {
    let facts = elf::facts(bytes).unwrap_or_default();
    let addresses = facts.segments.iter().map(|segment| segment.address).chain([0, 0x1000, u64::MAX]);
    let (variables, local) = (elf::variables(bytes), tail_calls::local_functions(bytes));
    let rows = cfi::rows(bytes);
    for address in addresses {
        elf::name_of(&variables, address);
        tail_calls::name_of(&local, address);
        cfi::indexed_rule(bytes, address);
    }
    for first in (0..=rows.len()).step_by(rows.len() / 8 + 1) {
        cfi::page(&rows, first);
    }
    elf::is_debug_file_of(bytes, bytes);
    for language in [Language::Rust, Language::Go] {
        let _ = functions::slow_paths(bytes, language);
    }
    let _ = (functions::functions(bytes), language(bytes));
    let mut file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
    file.write_all(bytes).unwrap();
    let source = Source::Elf(Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let no_debug_files = Some(std::iter::empty::<PathBuf>());
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).set_debug_dirs(no_debug_files).build();
    let _ = symbolizer.symbolize_single(&source, Input::VirtOffset(0x1000));
});
