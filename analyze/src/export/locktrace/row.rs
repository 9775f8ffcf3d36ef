//! Rows of the table, written and read; tables of the original can be read, too.

use std::{fmt, str::FromStr};

/// The first line of the table.
pub const HEADER: &str = "pid,tid,addr,blocked_us,sys_us,max_blocked_us,max_sys_us,wait_count,blocked_count,wake_count,errors,stack";

/// A row. Times are in µs; the times of each call are truncated before they are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The futex.
    pub addr: u64,
    /// Time asleep and in the run queue after that.
    pub blocked_us: i64,
    /// Other time in calls.
    pub sys_us: i64,
    /// The longest `blocked_us` of a call.
    pub max_blocked_us: i64,
    /// The longest `sys_us` of a call.
    pub max_sys_us: i64,
    /// Calls that wait.
    pub wait_count: i64,
    /// Calls that slept for a microsecond or longer.
    pub blocked_count: i64,
    /// Calls that wake.
    pub wake_count: i64,
    /// Calls that failed.
    pub errors: i64,
    /// The name of the process and the functions of the stack, root first, separated by semicolons.
    pub stack: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, tid, addr, blocked_us, sys_us, max_blocked_us, max_sys_us, .. } = self;
        let Self { wait_count, blocked_count, wake_count, errors, stack, .. } = self;
        write!(f, "{pid},{tid},{addr:#x},{blocked_us},{sys_us},{max_blocked_us},{max_sys_us},")?;
        write!(f, "{wait_count},{blocked_count},{wake_count},{errors},{stack}")
    }
}

impl FromStr for Row {
    type Err = &'static str;

    /// Reads a row of the original or of klock. The stack is everything after the eleventh comma, because functions contain commas.
    fn from_str(line: &str) -> Result<Self, &'static str> {
        row(line)
    }
}

/// A text is not a table of locktrace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read line {line}: {what}; give a table of locktrace or klock export --format locktrace")]
pub struct ReadError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub what: &'static str,
}

/// Returns the rows of a table with its header.
///
/// # Errors
///
/// The header differs, or a line is not a row.
pub fn read(text: &str) -> Result<Vec<Row>, ReadError> {
    let mut lines = text.lines().zip(1..);
    if lines.next().is_none_or(|(line, _)| line != HEADER) {
        return Err(ReadError { line: 1, what: "the columns are not those of locktrace" });
    }
    lines.map(|(line, at)| row(line).map_err(|what| ReadError { line: at, what })).collect()
}

fn row(line: &str) -> Result<Row, &'static str> {
    let fields: Vec<&str> = line.splitn(12, ',').collect();
    let [pid, tid, addr, numbers @ .., stack] = fields.as_slice() else {
        return Err("a row has twelve fields");
    };
    let number = |text: &&str| text.parse::<i64>().ok().ok_or("a count or a time is not a number");
    let id = |text: &str| text.parse::<i32>().ok().ok_or("a process or a thread is not a number");
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
        addr: addr.ok_or("an address does not begin with 0x or has other digits than hexadecimal ones")?,
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
