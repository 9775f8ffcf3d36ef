//! Reads waits from the output of `perf script -F tid,time,event,trace,ip,sym,symoff,dso`.

use super::wait::{Frame, Wait};

/// Returns the waits, in the order of the text.
pub(super) fn waits(text: &str) -> Vec<Wait> {
    let mut waits: Vec<Option<Wait>> = Vec::new();
    for line in text.lines() {
        if line.starts_with('\t') {
            if let (Some(Some(wait)), Some(frame)) = (waits.last_mut(), frame(line)) {
                wait.frames.push(frame);
            }
        } else if !line.trim().is_empty() {
            waits.push(head(line));
        }
    }
    waits.into_iter().flatten().collect()
}

/// Parses `3814 74253.645355172: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 81, 7fffffff, 0, 3, 0)`. Returns `None` for a call of
/// futex(2) that does not wait.
fn head(line: &str) -> Option<Wait> {
    /// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI` and `FUTEX_LOCK_PI2`.
    const WAITS: [u32; 5] = [0, 6, 9, 11, 13];
    const COMMAND: u32 = 0x7f;
    let mut words = line.split_whitespace();
    let tid = words.next()?.parse().ok()?;
    let (seconds, nanos) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let ts_ns = seconds.parse::<i64>().ok()? * 1_000_000_000 + nanos.parse::<i64>().ok()?;
    if let Some((_, arguments)) = line.split_once("NR 202 (") {
        let operation = u32::from_str_radix(arguments.split(", ").nth(1)?, 16).ok()?;
        WAITS.contains(&(operation & COMMAND)).then_some(())?;
    }
    Some(Wait { tid, ts_ns, frames: Vec::new() })
}

/// Parses `    d3bd3 __GI___wait4+0x13 (/usr/lib/x86_64-linux-gnu/libc.so.6)`. Returns `None` for kernel code.
fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.trim_start().split_once(' ')?;
    let (symbol, module) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    if module.starts_with("[kernel") || module.starts_with("[guest") {
        return None;
    }
    let function = (symbol != "[unknown]")
        .then(|| symbol.rsplit_once("+0x").map_or(symbol, |(function, _)| function).to_owned());
    Some(Frame {
        module: module.to_owned(),
        offset: u64::from_str_radix(address, 16).ok()?,
        functions: function.into_iter().collect(),
        marked: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_their_user_frames() {
        let text = "3814 74253.645355172: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 81, 7fffffff, 0, 3, 0)\n\
            \t           8e07e wake+0xfe (/usr/lib/libc.so.6)\n\n \
            3815 74253.000000007: raw_syscalls:sys_enter: NR 202 (7f33497fba4c, 189, 0, 0, 0, 0)\n\
            \tffffffff81417d70 syscall_trace_enter+0x180 ([kernel.kallsyms])\n\
            \t           8e07e a(int, b (*)())+0xfe (/usr/lib/libc.so.6)\n\
            \t              1f [unknown] (/usr/bin/a b)\n\n";
        let found = waits(text);
        assert_eq!(found.len(), 1, "a wake is not a wait");
        assert_eq!((found[0].tid, found[0].ts_ns), (3815, 74_253_000_000_007));
        let frame = |module: &str, offset, functions: &[&str]| Frame {
            module: module.to_owned(),
            offset,
            functions: functions.iter().map(|&function| function.to_owned()).collect(),
            marked: false,
        };
        assert_eq!(
            found[0].frames,
            [frame("/usr/lib/libc.so.6", 0x8e07e, &["a(int, b (*)())"]), frame("/usr/bin/a b", 0x1f, &[])]
        );
    }

    #[test]
    fn context_switches_are_waits() {
        let found = waits(" 4254 74262.156778413: context-switches: \n\t   d3bd3 f+0x13 (/bin/a)\n\n");
        assert_eq!((found.len(), found[0].frames.len()), (1, 1));
    }
}
