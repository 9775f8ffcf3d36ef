//! The format read back: from the original, or from klock.

use super::{HEADER, Row};

/// Why a text is no such table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; give what locktrace or klock export --format locktrace wrote")]
pub struct ReadError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// The rows of a table with its header.
///
/// # Errors
///
/// The header is another one, or a line is no row.
pub fn read(text: &str) -> Result<Vec<Row>, ReadError> {
    let mut lines = text.lines().zip(1..);
    if lines.next().is_none_or(|(line, _)| line != HEADER) {
        return Err(ReadError { line: 1, what: "the columns are not those of locktrace" });
    }
    lines.map(|(line, at)| row(line).map_err(|what| ReadError { line: at, what })).collect()
}

pub(super) fn row(line: &str) -> Result<Row, &'static str> {
    let fields: Vec<&str> = line.splitn(12, ',').collect();
    let [pid, tid, addr, numbers @ .., stack] = fields.as_slice() else {
        return Err("a row has twelve fields");
    };
    let number = |text: &&str| text.parse::<i64>().ok().ok_or("a count or a time is no number");
    let id = |text: &str| text.parse::<i32>().ok().ok_or("a process or a thread is no number");
    let addr = addr.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let numbers: Vec<i64> = numbers.iter().map(number).collect::<Result<_, _>>()?;
    let [blocked_us, sys_us, max_blocked_us, max_sys_us, wait_count, blocked_count, wake_count, errors] =
        numbers[..]
    else {
        return Err("a row has twelve fields");
    };
    Ok(Row {
        pid: id(pid)?,
        tid: id(tid)?,
        addr: addr.ok_or("an address begins with 0x and has hex digits")?,
        blocked_us,
        sys_us,
        max_blocked_us,
        max_sys_us,
        wait_count,
        blocked_count,
        wake_count,
        errors,
        stack: (*stack).to_owned(),
    })
}
