//! Functions that start programs. A program may be unable to load this library: in another root or mount
//! namespace, as a user who must not read it, or of 32 bits. Its loader would print an error, so the library
//! is taken out of the LD_PRELOAD that it gets. An address sanitizer ends a program that loads another
//! library first, so the program gets the sanitizer's option against that, also where a script has set
//! options of its own. Everything else is forwarded unchanged. Programs that do not record themselves are
//! counted by reason.
//!
//! Not seen: programs that are started by system calls without these functions.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::MaybeUninit,
    ptr::null,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use trace_format::preload::Unrecorded;

use crate::{
    process,
    program::reason_of,
    real::{self, Forwarded, Strings},
    restrictions, sys,
};

/// Maximum length of a path.
const MAX_PATH: usize = 4096;
const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// The options of address sanitizers, and the one without which they end the program.
const SANITIZER: &[u8] = b"ASAN_OPTIONS=";
const ORDER: &[u8] = b"verify_asan_link_order";
const ORDER_OFF: &CStr = c"ASAN_OPTIONS=verify_asan_link_order=0";
/// Characters that separate paths in the variable.
const SEPARATORS: [u8; 2] = [b':', b' '];

/// The path of this library as the loader knows it, without the terminating zero; empty if unknown.
static mut PATH: [u8; MAX_PATH] = [0; MAX_PATH];
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The file that the path named when the program started.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Finds the file of this library, given an address in it. Runs once, before main.
pub(crate) fn find_own_file(inside: *const c_void) {
    real::find_exec_functions();
    let Some(_permit) = restrictions::permit() else { return };
    let mut facts = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader fills the facts, whose strings exist as long as this library.
    let name = unsafe {
        if libc::dladdr(inside, facts.as_mut_ptr()) == 0 {
            return;
        }
        let name = facts.assume_init().dli_fname;
        if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() }
    };
    if name.first() != Some(&b'/') || name.len() >= MAX_PATH {
        return;
    }
    // SAFETY: no other thread reads the path before its length is stored.
    unsafe { (&raw mut PATH).cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len()) };
    if let Some((device, inode)) = identity() {
        DEVICE.store(device, Ordering::Relaxed);
        INODE.store(inode, Ordering::Relaxed);
        PATH_BYTES.store(name.len(), Ordering::Release);
    }
}

/// Returns the path of this library, empty if it is unknown.
fn own_path() -> &'static [u8] {
    // SAFETY: the path was written before its length, and does not change.
    unsafe { core::slice::from_raw_parts((&raw const PATH).cast::<u8>(), PATH_BYTES.load(Ordering::Acquire)) }
}

/// Returns the device and inode of the file that has the path now, as this thread sees it.
fn identity() -> Option<(u64, u64)> {
    let mut facts = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends with a zero, and the kernel fills the facts.
    unsafe {
        sys::stat((&raw const PATH) as usize, facts.as_mut_ptr()).then(|| {
            let facts = facts.assume_init();
            (facts.st_dev, facts.st_ino)
        })
    }
}

/// Whether a new program would find this library under its path. Under a seccomp filter this is assumed.
fn is_reachable() -> bool {
    let Some(_permit) = restrictions::permit() else { return true };
    let own = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    own_path().is_empty() || identity() == Some(own)
}

/// Returns the value of an entry of an environment that loads this library.
fn loading_value(entry: &[u8]) -> Option<&[u8]> {
    let value = entry.strip_prefix(VARIABLE)?;
    words(value).any(|word| word == own_path()).then_some(value)
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| SEPARATORS.contains(byte)).filter(|word| !word.is_empty())
}

/// Copies parts of an entry to `to`, and a zero behind them. Returns the number of bytes.
unsafe fn write_entry<'a>(parts: impl Iterator<Item = &'a [u8]>, to: *mut u8) -> usize {
    let mut count = 0;
    for part in parts.chain([b"\0".as_slice()]) {
        // SAFETY: the caller has room for all parts.
        unsafe { to.add(count).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        count += part.len();
    }
    count
}

/// Writes the entry for the other libraries of `value` to `to`, which has room for the old entry with its
/// terminating zero. Returns the number of bytes; 0 if there are no other libraries.
unsafe fn write_others(value: &[u8], to: *mut u8) -> usize {
    let others = || words(value).filter(|word| *word != own_path());
    if others().next().is_none() {
        return 0;
    }
    let parts =
        others().enumerate().flat_map(|(index, word)| [if index == 0 { VARIABLE } else { b":" }, word]);
    // SAFETY: the new entry consists of parts of the old one.
    unsafe { write_entry(parts, to) }
}

/// A change that this library makes to the environment of a new program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// This library is not loaded.
    WithoutLibrary,
    /// An address sanitizer accepts the library.
    WithOrderOff,
}

impl Edit {
    /// Returns the most bytes of the entry that replaces this one, with its terminating zero; 0 if it stays.
    fn room(self, entry: &[u8]) -> usize {
        match self {
            Self::WithoutLibrary => loading_value(entry).map_or(0, |_| entry.len() + 1),
            Self::WithOrderOff if entry.starts_with(SANITIZER) => {
                entry.len() + ORDER_OFF.to_bytes().len() + 1
            }
            Self::WithOrderOff => 0,
        }
    }

    /// Writes the entry that replaces one with room. Returns the number of bytes; 0 if there is none in its
    /// place.
    unsafe fn write(self, entry: &[u8], to: *mut u8) -> usize {
        // SAFETY: the caller has room.
        unsafe {
            match self {
                Self::WithoutLibrary => loading_value(entry).map_or(0, |value| write_others(value, to)),
                Self::WithOrderOff => {
                    let option = &ORDER_OFF.to_bytes()[SANITIZER.len()..];
                    write_entry([entry, b":", option].into_iter(), to)
                }
            }
        }
    }
}

/// Returns the bytes of an entry.
unsafe fn text<'a>(entry: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's environment consists of null-terminated strings.
    unsafe { CStr::from_ptr(entry) }.to_bytes()
}

/// Entries and bytes of an edited environment that fit on the stack.
const SMALL_LIST: usize = 256;
const SMALL_TEXT: usize = 1024;

/// Calls `run` with the environment for a new program: `environment`, without this library if the program
/// cannot load it. `path` is the path of the program, null if it is not known. Counts the program if it was
/// started: `run` returns 0, or not at all.
unsafe fn with_environment(
    path: *const c_char,
    environment: Strings,
    run: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's obligation.
    let reason = unsafe {
        if own_path().is_empty() {
            None
        } else if !has_library(environment) {
            Some(Unrecorded::Cleared)
        } else if !is_reachable() {
            Some(Unrecorded::Elsewhere)
        } else {
            reason_of(path)
        }
    };
    process::count_programs_because(1, reason);
    // SAFETY: the caller's obligation.
    let edit = unsafe {
        match reason {
            Some(Unrecorded::Cleared) => None,
            Some(Unrecorded::Elsewhere | Unrecorded::OtherMachine) => Some(Edit::WithoutLibrary),
            _ if own_path().is_empty() || entries(environment).any(names_order) => None,
            _ => Some(Edit::WithOrderOff),
        }
    };
    // SAFETY: the caller's obligation.
    let result = unsafe {
        match edit {
            Some(edit) => with_edited(environment, edit, run),
            None => run(environment),
        }
    };
    if result != 0 {
        process::count_programs_because(-1, reason);
    }
    result
}

/// Returns the entries of an environment.
unsafe fn entries<'a>(environment: Strings) -> impl Iterator<Item = &'a [u8]> {
    // SAFETY: null, or a null-terminated list of strings.
    (0..).map_while(move |at| unsafe {
        let is_there = !environment.is_null() && !(*environment.add(at)).is_null();
        is_there.then(|| text(*environment.add(at)))
    })
}

/// Whether an environment loads this library.
unsafe fn has_library(environment: Strings) -> bool {
    // SAFETY: the caller's obligation.
    unsafe { entries(environment) }.any(|entry| loading_value(entry).is_some())
}

/// Whether an entry has the option of an address sanitizer.
fn names_order(entry: &[u8]) -> bool {
    entry.starts_with(SANITIZER) && entry.windows(ORDER.len()).any(|part| part == ORDER)
}

/// Calls `run` with an edited environment.
unsafe fn with_edited(environment: Strings, change: Edit, run: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: a null-terminated list of strings.
    unsafe {
        let bytes: usize = entries(environment).map(|entry| change.room(entry)).sum();
        // One more may be added, and the null at the end.
        let count = entries(environment).count() + 2;
        if count <= SMALL_LIST && bytes <= SMALL_TEXT {
            return with_small(environment, change, run);
        }
        let size = count * size_of::<usize>() + bytes;
        let Some(memory) = sys::allocate(size) else { return run(environment) };
        edit(environment, change, memory.cast(), memory.add(count * size_of::<usize>()));
        let result = run(memory.cast());
        // The program was started by another process, or not at all.
        sys::unmap(memory, size);
        result
    }
}

/// As [`with_edited`] for an environment that fits on the stack. After a vfork, memory that the child
/// allocates would stay.
#[inline(never)]
unsafe fn with_small(environment: Strings, change: Edit, run: impl FnOnce(Strings) -> c_int) -> c_int {
    let mut list = [null::<c_char>(); SMALL_LIST];
    let mut texts = [0_u8; SMALL_TEXT];
    // SAFETY: the caller has checked the sizes.
    unsafe { edit(environment, change, list.as_mut_ptr(), texts.as_mut_ptr()) };
    run(list.as_ptr())
}

/// Writes the edited environment to `list`, and its new entries to `texts`.
unsafe fn edit(environment: Strings, change: Edit, mut list: *mut *const c_char, mut texts: *mut u8) {
    let mut put = |entry: *const c_char| {
        // SAFETY: the list has room for the whole environment, one entry and the null at the end.
        unsafe {
            list.write(entry);
            list = list.add(1);
        }
    };
    let mut has_sanitizer = false;
    // SAFETY: the texts have room for the changed entries.
    unsafe {
        for entry in entries(environment) {
            has_sanitizer |= entry.starts_with(SANITIZER);
            if change.room(entry) == 0 {
                put(entry.as_ptr().cast());
                continue;
            }
            let bytes = change.write(entry, texts);
            if bytes > 0 {
                put(texts.cast());
            }
            texts = texts.add(bytes);
        }
    }
    if change == Edit::WithOrderOff && !has_sanitizer {
        put(ORDER_OFF.as_ptr());
    }
    put(null());
}

/// The entry that replaces this process's own, and its state.
static mut OWN_ENTRY: [u8; MAX_PATH] = [0; MAX_PATH];
static OWN_STATE: AtomicU32 = AtomicU32::new(UNUSED);
const UNUSED: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

/// Takes this library out of the environment of this process, if programs cannot load it. `system` and
/// `popen` have no argument for the environment.
unsafe fn edit_own_environment() {
    // SAFETY: the C library's list of strings. An entry is replaced by a single store, as putenv does.
    unsafe {
        let mut at = real::environment();
        if at.is_null() || is_reachable() {
            return;
        }
        while !(*at).is_null() {
            if let Some(entry) = replacement(text(*at)) {
                AtomicPtr::from_ptr(at.cast::<*mut c_char>()).store(entry.cast_mut(), Ordering::Release);
            }
            at = at.add(1);
        }
    }
}

/// Returns the entry that replaces one that loads this library.
unsafe fn replacement(entry: &[u8]) -> Option<*const c_char> {
    let value = loading_value(entry)?;
    let own = (&raw mut OWN_ENTRY).cast::<u8>();
    if entry.len() < MAX_PATH
        && OWN_STATE.compare_exchange(UNUSED, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    {
        // SAFETY: only this thread writes the buffer, which has room.
        unsafe { write_others(value, own) };
        OWN_STATE.store(WRITTEN, Ordering::Release);
    }
    let has_others = words(value).any(|word| word != own_path());
    match (has_others, OWN_STATE.load(Ordering::Acquire)) {
        (false, _) => Some(c"LD_PRELOAD=".as_ptr()),
        (true, WRITTEN) => Some(own.cast()),
        (true, _) => None,
    }
}

/// `system`. Returns the function to continue in.
pub(crate) unsafe extern "C" fn before_system(command: *const c_char) -> Forwarded {
    process::count_programs((!command.is_null()).into());
    // SAFETY: the caller's obligation.
    unsafe { edit_own_environment() };
    real::SYSTEM.get()
}

/// `popen`. Returns the function to continue in.
pub(crate) unsafe extern "C" fn before_popen() -> Forwarded {
    process::count_programs(1);
    // SAFETY: the caller's obligation.
    unsafe { edit_own_environment() };
    real::POPEN.get()
}

/// `execle`: the environment follows the null pointer that ends the variable arguments.
pub(crate) unsafe extern "C" fn execle(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, (*end.add(1)).cast())
    }
}

/// `execv`, and `execl`, whose variable arguments are `arguments`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { execve(path, arguments, real::environment().cast_const()) }
}

/// `execvp`, and `execlp`, whose variable arguments are `arguments`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { execvpe(file, arguments, real::environment().cast_const()) }
}

/// Returns the path of a program; null if it has no slash, so that it is searched for.
unsafe fn path_in(file: *const c_char) -> *const c_char {
    // SAFETY: null, or a string.
    if file.is_null() || unsafe { !text(file).contains(&b'/') } { null() } else { file }
}

/// Exports functions that start a program with an environment, which comes behind the semicolon, and the
/// program's path behind the arrow.
macro_rules! with_environments {
    ($($name:ident($($argument:ident: $type:ty),+; $environment:ident $(, $flags:ident: $flags_type:ty)?) = $real:ident <- $path:expr;)+) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "tests are not interposed"))]
        unsafe extern "C" fn $name($($argument: $type,)+ $environment: Strings $(, $flags: $flags_type)?) -> c_int {
            // SAFETY: forwarded with an environment that has the same type.
            unsafe {
                with_environment($path, $environment, |$environment| {
                    real::$real.get()($($argument,)+ $environment $(, $flags)?)
                })
            }
        }
    )+ };
}

with_environments! {
    execve(path: *const c_char, arguments: Strings; environment) = EXECVE <- path;
    execvpe(file: *const c_char, arguments: Strings; environment) = EXECVPE <- path_in(file);
    fexecve(descriptor: c_int, arguments: Strings; environment) = FEXECVE <- null();
    execveat(directory: c_int, path: *const c_char, arguments: Strings; environment, flags: c_int) = EXECVEAT <- null();
    posix_spawn(child: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings;
        environment) = POSIX_SPAWN <- path;
    posix_spawnp(child: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings;
        environment) = POSIX_SPAWNP <- path_in(path);
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Sets the path of the library, which is the same for all tests.
    fn set_path() {
        let path = b"/klock/lib.so";
        // SAFETY: all tests write the same bytes.
        unsafe { (&raw mut PATH).cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), path.len()) };
        PATH_BYTES.store(path.len(), Ordering::Release);
    }

    fn edited(entries: &[&str]) -> Vec<String> {
        set_path();
        let entries: Vec<CString> =
            entries.iter().map(|entry| CString::new(*entry).expect("no zero")).collect();
        let list: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).chain([null()]).collect();
        let mut result = Vec::new();
        // SAFETY: a null-terminated list of strings; no file has the path, so that the environment is edited.
        unsafe {
            with_environment(null(), list.as_ptr(), |list| {
                let mut at = list;
                while !(*at).is_null() {
                    result.push(String::from_utf8_lossy(text(*at)).into_owned());
                    at = at.add(1);
                }
                0
            });
        }
        result
    }

    #[test]
    fn the_library_is_removed_and_others_stay() {
        assert_eq!(edited(&["A=1", "LD_PRELOAD=/klock/lib.so", "B=2"]), ["A=1", "B=2"]);
        assert_eq!(edited(&["LD_PRELOAD=/klock/lib.so:/a.so b.so"]), ["LD_PRELOAD=/a.so:b.so"]);
        assert_eq!(edited(&["LD_PRELOAD=/a.so  /klock/lib.so:"]), ["LD_PRELOAD=/a.so"]);
        assert_eq!(edited(&["LD_PRELOAD=/klock/lib.so2", "C="]), ["LD_PRELOAD=/klock/lib.so2", "C="]);
        assert_eq!(edited(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_sanitizer_gets_its_option_unless_the_program_has_decided_about_it() {
        let changed = |entries: &[&str]| {
            let entries: Vec<CString> =
                entries.iter().map(|entry| CString::new(*entry).expect("no zero")).collect();
            let list: Vec<_> = entries.iter().map(|entry| entry.as_ptr()).chain([null()]).collect();
            let mut result = Vec::new();
            // SAFETY: null-terminated lists of strings.
            unsafe {
                with_edited(list.as_ptr(), Edit::WithOrderOff, |list| {
                    result.extend(
                        super::entries(list).map(|entry| String::from_utf8_lossy(entry).into_owned()),
                    );
                    0
                });
            }
            result
        };
        let off = "ASAN_OPTIONS=verify_asan_link_order=0";
        assert_eq!(changed(&["A=1"]), ["A=1", off]);
        assert_eq!(
            changed(&["ASAN_OPTIONS=a=1", "B=2"]),
            ["ASAN_OPTIONS=a=1:verify_asan_link_order=0", "B=2"]
        );
        assert_eq!(changed(&["ASAN_OPTIONS="]), ["ASAN_OPTIONS=:verify_asan_link_order=0"]);
        assert!(names_order(off.as_bytes()) && names_order(b"ASAN_OPTIONS=a=1:verify_asan_link_order=1"));
        assert!(!names_order(b"LSAN_OPTIONS=verify_asan_link_order=0") && !names_order(b"ASAN_OPTIONS="));
    }

    #[test]
    fn a_large_environment_is_edited_too() {
        let long = format!("LD_PRELOAD=/klock/lib.so:/{}", "x".repeat(3000));
        let mut entries = vec![long.as_str()];
        entries.extend(core::iter::repeat_n("A=1", 1000));
        let edited = edited(&entries);
        assert_eq!((edited.len(), edited[0].len()), (1001, "LD_PRELOAD=/".len() + 3000));
    }
}
