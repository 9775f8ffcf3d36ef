//! The histograms of locktrace, `--hist FILE`: how long the calls on each futex of a process slept, in powers of two.
//!
//! The layout is bcc's `print_log2_hist` (`src/python/bcc/table.py`), as locktrace joins it. The original counts a time under the
//! power of two below it, prints the bounds of the one below that, and never prints the first row; with
//! [`Options::hist_compat`](super::Options) so does this.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

/// Writes a histogram for each futex and process.
pub(super) fn write_all(
    slots: &FxHashMap<(u64, i32), Vec<u64>>,
    compat: bool,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let mut sections: Vec<(&(u64, i32), &Vec<u64>)> = slots.iter().collect();
    sections.sort_unstable_by_key(|((address, pid), _)| (*pid, *address));
    for (at, ((address, pid), slots)) in sections.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write!(out, "PID {pid}, LOCK {address:#x}")?;
        section(slots, compat, out)?;
    }
    Ok(())
}

/// Writes the rows of one futex. `slots[i]` is the number of times from `2^i` µs, `slots[0]` from 0.
pub(super) fn section(slots: &[u64], compat: bool, out: &mut (dyn Write + Send)) -> io::Result<()> {
    // The printer leaves out row 0, where the original counts the shortest times.
    let shift = usize::from(!compat);
    let Some(last) = slots.iter().rposition(|count| *count > 0).map(|at| at + shift).filter(|at| *at > 0)
    else {
        return Ok(());
    };
    let most = slots.iter().copied().max().unwrap_or(0);
    let (pad, head, digits, stars) = if last <= 32 { (5, 19, 10, 40) } else { (15, 29, 20, 20) };
    writeln!(out, "{:pad$}{:<head$} : count     distribution", "", "usecs")?;
    let count_of = |row: usize| row.checked_sub(shift).and_then(|at| slots.get(at)).copied().unwrap_or(0);
    for row in (1..=last).skip_while(|row| count_of(*row) == 0) {
        let (low, high) = if row == 1 { (0, 1) } else { (1_u64 << (row - 1), (1_u64 << (row - 1)) * 2 - 1) };
        let count = count_of(row);
        let bar = "*".repeat(usize::try_from(count * stars / most.max(1)).unwrap_or(0));
        let width = usize::try_from(stars).unwrap_or(0);
        writeln!(out, "{low:>digits$} -> {high:<digits$} : {count:<8} |{bar:<width$}|")?;
    }
    Ok(())
}
