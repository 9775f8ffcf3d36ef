//! Numbers for people: durations, counts and sizes in a few characters.

use chrono::DateTime;

/// Nanoseconds in three significant digits: `0`, `999 ns`, `1.23 ms`, `45.6 s`; whole seconds from there on,
/// hours after a day. At most 7 characters up to 9999 hours.
pub fn duration(ns: i64) -> String {
    const DAY: f64 = 99_999.5e9;
    match ns {
        0 => "0".to_owned(),
        1..1000 => format!("{ns} ns"),
        i64::MIN..0 => format!("-{}", duration(ns.saturating_neg())),
        _ if ns as f64 >= DAY => format!("{} h", three_digits(ns as f64 / 3600e9)),
        _ => scaled(ns as f64, &[(1e3, " µs"), (1e6, " ms"), (1e9, " s")]),
    }
}

/// Nanoseconds as seconds with every digit: `1.234567890`.
pub fn timestamp(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A time of a wall clock, in nanoseconds since 1970: `2026-01-31 23:59:59 UTC`; nothing for a clock that was
/// not read.
pub fn utc(realtime_ns: i64) -> String {
    let time = (realtime_ns > 0).then(|| DateTime::from_timestamp_nanos(realtime_ns));
    time.map_or_else(String::new, |time| time.format("%F %T UTC").to_string())
}

/// The date of a time of a wall clock: `2026-01-31`.
pub fn date(realtime_ns: i64) -> String {
    DateTime::from_timestamp_nanos(realtime_ns).date_naive().to_string()
}

/// Returns a part of a whole in millionths; `None` if the whole is 0. In 128 bits: the product of a sum of
/// times and a million exceeds 64 bits after some hours.
pub fn ppm(part: i64, whole: i64) -> Option<i64> {
    let ppm = (i128::from(part) * 1_000_000).checked_div(i128::from(whole))?;
    i64::try_from(ppm).ok()
}

/// A count with its thousands apart, `81,234`; in three significant digits from a million on, `1.23 M`.
pub fn count(n: impl TryInto<i64>) -> String {
    match at_most(n) {
        n if n.unsigned_abs() < 1_000_000 => digits(n),
        n => scaled(n as f64, &[(1e6, " M"), (1e9, " G"), (1e12, " T")]),
    }
}

/// A count with its thousands apart, all digits: `1,234,567`.
pub fn exact(n: impl TryInto<i64>) -> String {
    digits(at_most(n))
}

/// A count of things in all digits: `1 wait`, `1,234 waits`.
pub fn counted(n: impl TryInto<i64>, what: &str) -> String {
    let n = at_most(n);
    format!("{} {what}{}", digits(n), if n == 1 { "" } else { "s" })
}

/// A count of times: `once`, `12 times`.
pub fn times(n: impl TryInto<i64>) -> String {
    match at_most(n) {
        1 => "once".to_owned(),
        n => format!("{} times", digits(n)),
    }
}

/// Returns a count as 64 bits; the greatest number for a greater count.
fn at_most(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

fn digits(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if n < 0 { format!("-{text}") } else { text }
}

/// Bytes in three significant digits of decimal units: `1.23 MB`.
pub fn bytes(n: u64) -> String {
    if n < 1000 {
        return format!("{n} B");
    }
    scaled(n as f64, &[(1e3, " kB"), (1e6, " MB"), (1e9, " GB"), (1e12, " TB")])
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fits = |unit: f64| three_digits(value.abs() / unit).parse().is_ok_and(|v: f64| v < 1000.0);
    let last = units.len() - 1;
    let (unit, name) = units.iter().find(|(unit, _)| fits(*unit)).unwrap_or(&units[last]);
    format!("{}{name}", three_digits(value / unit))
}

fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_the_calendar() {
        for (seconds, text) in [
            (1, "1970-01-01 00:00:01 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
        assert_eq!(utc(0), "");
        assert_eq!(date(-1), "1969-12-31");
    }

    #[test]
    fn a_duration_has_three_digits_and_rounds_into_the_next_unit() {
        let cases = [
            (0, "0"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (9_995_000_000, "10.0 s"),
            (999_000_000_000, "999 s"),
            (1_000_000_000_000, "1000 s"),
            (99_999_000_000_000, "99999 s"),
            (100_000_000_000_000, "27.8 h"),
            (-1_500, "-1.50 µs"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text, "{ns}");
        }
        assert_eq!(duration(i64::MIN), format!("-{}", duration(i64::MAX)));
    }

    #[test]
    fn counts_keep_every_digit_until_a_million() {
        assert_eq!(count(999_999), "999,999");
        assert_eq!(count(1_234_567), "1.23 M");
        assert_eq!(exact(-1_234_567), "-1,234,567");
        assert_eq!([timestamp(1_000_000_001), timestamp(-1)], ["1.000000001", "-0.000000001"]);
        assert_eq!(exact(12), "12");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
    }
}
