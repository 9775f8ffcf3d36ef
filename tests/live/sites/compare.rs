//! Pairs the waits that two recorders saw, and compares their call sites.
//!
//! The site is the first frame outside of the C library and of the runtimes of Rust and Go. A stack of a
//! runtime alone, such as a thread of Go's scheduler has, has no site: all frames of perf must be in
//! klock's stack then, in their order. Frames below the scheduler's stack are of the goroutine that ran last,
//! which does not wait.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

/// The largest difference in time between two records of one wait.
const NEAR_NS: i64 = 100_000;
/// Number of differences that are described.
const DESCRIBED: usize = 3;

/// A wait that a recorder saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The thread.
    pub(crate) tid: i32,
    /// The begin, CLOCK_MONOTONIC.
    pub(crate) ts_ns: i64,
    /// User frames, leaf first.
    pub(crate) frames: Vec<Frame>,
}

/// A frame of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The mapped file.
    pub(crate) module: String,
    /// Offset of the instruction in the file; in a caller, of the last byte of the call.
    pub(crate) offset: u64,
    /// Function names, innermost first: inlined functions, then the function itself.
    pub(crate) functions: Vec<String>,
    /// Whether the recorder marks the frame as a guess.
    pub(crate) marked: bool,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    /// Waits that klock recorded with a stack.
    pub(crate) waits: u64,
    /// Waits that perf recorded too, with a stack that reaches the site.
    pub(crate) paired: u64,
    /// Paired waits with the same site.
    pub(crate) equal: u64,
    /// Those of them for which the recorders chose another one of the functions at the site: linkers merge
    /// functions with equal code.
    pub(crate) renamed: u64,
    /// Paired waits whose site klock marks as a guess.
    pub(crate) marked: u64,
    /// Paired waits for which klock's stack ends before the site: its frames are the first of perf's.
    pub(crate) short: u64,
    /// Paired waits with another site, which is not marked.
    pub(crate) wrong: u64,
    /// Paired waits for which perf's stack ends before the site. They are not counted in `paired`.
    pub(crate) cut: u64,
    /// Both stacks of some of the wrong waits.
    pub(crate) described: Vec<String>,
}

/// Agreement of two stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Equal,
    Renamed,
    Marked,
    Short,
    Wrong,
    Cut,
}

/// Compares the waits of perf with the waits of klock.
pub(crate) fn compare(perf: &[Wait], klock: &[Wait]) -> Comparison {
    let is_own = own_code(klock);
    let mut comparison = Comparison { waits: klock.len() as u64, ..Comparison::default() };
    for (perf, klock) in pairs(perf, klock) {
        match verdict(perf, klock, &is_own) {
            Verdict::Equal => comparison.equal += 1,
            Verdict::Renamed => {
                comparison.equal += 1;
                comparison.renamed += 1;
            }
            Verdict::Marked => comparison.marked += 1,
            Verdict::Short => comparison.short += 1,
            Verdict::Cut => comparison.cut += 1,
            Verdict::Wrong => {
                comparison.wrong += 1;
                if comparison.described.len() < DESCRIBED {
                    comparison.described.push(describe(perf, klock));
                }
            }
        }
    }
    comparison.paired = comparison.equal + comparison.marked + comparison.short + comparison.wrong;
    comparison
}

/// Pairs the waits of the same thread that are nearest to each other in time.
fn pairs<'a>(perf: &'a [Wait], klock: &'a [Wait]) -> Vec<(&'a Wait, &'a Wait)> {
    let of = |waits: &'a [Wait]| {
        let mut by_thread: HashMap<i32, BTreeMap<i64, &'a Wait>> = HashMap::new();
        for wait in waits {
            by_thread.entry(wait.tid).or_default().insert(wait.ts_ns, wait);
        }
        by_thread
    };
    let nearest = |waits: &BTreeMap<i64, &'a Wait>, ts_ns: i64| {
        let before = waits.range(..=ts_ns).next_back();
        let after = waits.range(ts_ns..).next();
        let found = before.into_iter().chain(after).min_by_key(|(at, _)| ts_ns.abs_diff(**at));
        found.map(|(_, &wait)| wait)
    };
    let (perf_threads, klock_threads) = (of(perf), of(klock));
    let mut pairs = Vec::new();
    for wait in klock {
        let other = perf_threads.get(&wait.tid).and_then(|waits| nearest(waits, wait.ts_ns));
        let Some(other) = other.filter(|other| (other.ts_ns - wait.ts_ns).abs() <= NEAR_NS) else { continue };
        let back = klock_threads.get(&wait.tid).and_then(|waits| nearest(waits, other.ts_ns));
        if back.is_some_and(|back| back.ts_ns == wait.ts_ns) {
            pairs.push((other, wait));
        }
    }
    pairs
}

/// Returns whether the code of each frame of klock's stacks belongs to the program. Only klock lists inlined
/// functions: the program's may be inlined into a function of the runtime.
fn own_code(waits: &[Wait]) -> HashMap<(&str, u64), bool> {
    let frames = waits.iter().flat_map(|wait| &wait.frames);
    frames.map(|frame| ((&*frame.module, frame.offset), is_own(frame))).collect()
}

/// Whether a frame belongs to the program, by its names.
fn is_own(frame: &Frame) -> bool {
    const MODULES: [&str; 7] =
        ["libc.so", "libpthread", "ld-linux", "libm.so", "libstdc++", "libklock", "[vdso]"];
    const FUNCTIONS: [&str; 8] =
        ["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "runtime.", "internal/"];
    let name = frame.module.rsplit_once('/').map_or(&*frame.module, |(_, name)| name);
    let is_runtime = |function: &String| {
        FUNCTIONS.iter().any(|runtime| function.starts_with(runtime))
            || function == "__rust_begin_short_backtrace"
    };
    !name.is_empty()
        && !MODULES.iter().any(|module| name.starts_with(module))
        && (frame.functions.is_empty() || frame.functions.iter().any(|function| !is_runtime(function)))
}

fn verdict(perf: &Wait, klock: &Wait, own: &HashMap<(&str, u64), bool>) -> Verdict {
    let known = |frame: &Frame| own.get(&(&*frame.module, frame.offset)).copied();
    let site_of =
        |frames: &[Frame]| frames.iter().position(|frame| known(frame).unwrap_or_else(|| is_own(frame)));
    let (perf, klock) = (until_scheduler(&perf.frames), until_scheduler(&klock.frames));
    let (perf_site, klock_site) = (site_of(perf), site_of(klock));
    let equal = match (perf_site, klock_site) {
        (Some(a), Some(b)) => is_same_place(&perf[a], &klock[b]),
        (None, None) if perf.len() < 2 => return Verdict::Cut,
        (None, None) => {
            let mut rest = klock.iter();
            // Each recorder chooses among the names that the C library has for an address.
            perf.iter().all(|a| rest.any(|b| is_same_place(a, b)))
        }
        (Some(_), None) if is_begin_of(klock, perf) => return Verdict::Short,
        (Some(_), None) => false,
        (None, Some(_)) => return Verdict::Cut,
    };
    let last = klock_site.unwrap_or(klock.len().saturating_sub(1).min(1));
    match (equal, klock.get(last)) {
        (_, Some(frame)) if frame.marked => Verdict::Marked,
        (true, Some(frame)) if perf_site.is_some_and(|site| !has_same_name(&perf[site], frame)) => {
            Verdict::Renamed
        }
        (true, Some(_)) => Verdict::Equal,
        (true, None) => Verdict::Cut,
        (false, _) => Verdict::Wrong,
    }
}

/// Returns the frames up to the first function of the scheduler's stack, if it is there.
fn until_scheduler(frames: &[Frame]) -> &[Frame] {
    const FIRST: [&str; 2] = ["runtime.mcall", "runtime.mstart"];
    let is_first = |frame: &Frame| frame.functions.iter().any(|function| FIRST.contains(&bare(function)));
    frames.iter().position(is_first).map_or(frames, |at| &frames[..=at])
}

/// Whether both recorders found the same instruction.
fn is_same_place(perf: &Frame, klock: &Frame) -> bool {
    // The frame below a signal handler's frame is not a call.
    perf.module == klock.module && (perf.offset == klock.offset || perf.offset == klock.offset + 1)
}

/// Whether a stack of more than a leaf is the begin of another one, apart from frames that are marked as
/// guesses.
fn is_begin_of(short: &[Frame], long: &[Frame]) -> bool {
    let certain: Vec<&Frame> = short.iter().take_while(|frame| !frame.marked).collect();
    certain.len() > 1
        && certain.len() <= long.len()
        && long.iter().zip(certain).all(|(a, b)| is_same_place(a, b))
}

/// Whether both recorders have the same name for the function, or one of them none.
fn has_same_name(perf: &Frame, klock: &Frame) -> bool {
    let names = (perf.functions.last(), klock.functions.last());
    names.0.is_none_or(|a| names.1.is_none_or(|b| bare(a) == bare(b)))
}

/// Returns a function's name without its arguments, and without the suffixes of compilers.
fn bare(function: &str) -> &str {
    let function = function.split_once('(').map_or(function, |(name, _)| name);
    let function =
        function.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16).map_or(function, |(name, _)| name);
    [".abi0", ".part", ".cold", ".constprop", ".isra", "@"]
        .iter()
        .filter_map(|suffix| function.find(suffix))
        .min()
        .map_or(function, |end| &function[..end])
}

fn describe(perf: &Wait, klock: &Wait) -> String {
    let mut text = format!("thread {} at {} ns\n", klock.tid, klock.ts_ns);
    for (name, wait) in [("perf", perf), ("klock", klock)] {
        let _ = writeln!(text, "  {name}:");
        for frame in &wait.frames {
            let mark = if frame.marked { " (marked)" } else { "" };
            let _ = writeln!(
                text,
                "    {}+{:#x} {}{mark}",
                frame.module,
                frame.offset,
                frame.functions.join(" < ")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, offset: u64, function: &str) -> Frame {
        Frame { module: module.to_owned(), offset, functions: vec![function.to_owned()], marked: false }
    }

    fn wait(ts_ns: i64, frames: &[Frame]) -> Wait {
        Wait { tid: 1, ts_ns, frames: frames.to_vec() }
    }

    fn counts(perf: &[Frame], klock: &[Frame]) -> [u64; 4] {
        let Comparison { equal, marked, wrong, cut, .. } = compare(&[wait(0, perf)], &[wait(900, klock)]);
        [equal, marked, wrong, cut]
    }

    #[test]
    fn the_first_frames_outside_of_runtimes_are_compared() {
        let libc = frame("/lib/libc.so.6", 8, "wait");
        let (one, other) = (frame("/bin/a", 16, "f"), frame("/bin/a", 32, "g"));
        assert_eq!(counts(&[libc.clone(), one.clone()], &[libc.clone(), one.clone()]), [1, 0, 0, 0]);
        assert_eq!(
            counts(&[libc.clone(), one.clone()], &[libc.clone(), other.clone(), one.clone()]),
            [0, 0, 1, 0]
        );
        let marked = Frame { marked: true, ..other };
        assert_eq!(counts(&[libc.clone(), one.clone()], &[libc.clone(), marked]), [0, 1, 0, 0]);
        assert_eq!(counts(std::slice::from_ref(&libc), &[libc.clone(), one.clone()]), [0, 0, 0, 1]);
        assert_eq!(
            counts(&[libc.clone(), one.clone()], std::slice::from_ref(&libc)),
            [0, 0, 1, 0],
            "a leaf has no site"
        );
        let caller = frame("/lib/libc.so.6", 24, "caller");
        let long = compare(&[wait(0, &[libc.clone(), caller.clone(), one])], &[wait(900, &[libc, caller])]);
        assert_eq!((long.paired, long.short, long.wrong), (1, 1, 0));
    }

    #[test]
    fn frames_of_a_runtime_alone_are_compared_in_their_order() {
        let names = ["runtime.futex", "runtime.futexsleep", "runtime.notesleep", "runtime.mcall", "main.add"];
        let stack = names.map(|name| frame("/bin/a", name.len() as u64 * 8, name));
        let [futex, sleep, note, mcall, main] = &stack;
        let of = |frames: &[&Frame]| frames.iter().map(|&frame| frame.clone()).collect::<Vec<_>>();
        assert_eq!(counts(&of(&[futex, note, mcall, main]), &of(&[futex, sleep, note, mcall])), [1, 0, 0, 0]);
        assert_eq!(counts(&of(&[futex, sleep, note]), &of(&[futex, note])), [0, 0, 1, 0]);
        assert_eq!(counts(&of(&[futex]), &of(&[futex, note])), [0, 0, 0, 1], "a leaf says nothing");
    }

    #[test]
    fn waits_are_paired_by_thread_and_time() {
        let stack = [frame("/bin/a", 16, "f")];
        let perf = [wait(0, &stack), wait(50_000, &stack), Wait { tid: 2, ..wait(900_000, &stack) }];
        let klock = [wait(1_000, &stack), wait(52_000, &stack), wait(60_000, &stack), wait(900_000, &stack)];
        let compared = compare(&perf, &klock);
        assert_eq!((compared.waits, compared.paired), (4, 2));
    }

    #[test]
    fn names_of_one_function_of_the_c_library_are_equal() {
        let of = |offset, name: &str| {
            [frame("/lib/libc.so.6", offset, name), frame("/lib/libc.so.6", 32, "clone3")]
        };
        assert_eq!(counts(&of(8, "__madvise"), &of(8, "__GI_madvise")), [1, 0, 0, 0]);
        assert_eq!(counts(&of(8, "__madvise"), &of(16, "__madvise")), [0, 0, 1, 0]);
    }

    #[test]
    fn another_name_of_a_site_is_counted() {
        let of = |name: &str| [wait(0, &[frame("/bin/a", 8, name)])];
        let compared = |a: &str, b: &str| compare(&of(a), &of(b));
        assert_eq!((compared("f(int)", "f").equal, compared("f(int)", "f").renamed), (1, 0));
        assert_eq!((compared("f", "g").equal, compared("f", "g").renamed), (1, 1));
    }

    #[test]
    fn names_are_compared_without_arguments_and_suffixes() {
        let names = ["a::b(int)", "a::b.part.0", "a::b", "a::b::h0123456789abcdef", "a::b@@GLIBC_2"];
        assert!(names.iter().all(|name| bare(name) == "a::b"));
    }
}
