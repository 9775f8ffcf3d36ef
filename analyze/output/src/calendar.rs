//! Dates of the calendar in UTC, from the nanoseconds since 1970 of a wall clock.

const NS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Returns `2026-01-31 23:59:59 UTC`, or nothing for a clock that was not read.
pub fn utc(realtime_ns: i64) -> String {
    if realtime_ns <= 0 {
        return String::new();
    }
    let time = realtime_ns.div_euclid(NS_PER_SECOND).rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", date(realtime_ns))
}

/// Returns `2026-01-31`.
pub fn date(realtime_ns: i64) -> String {
    // Howard Hinnant's civil_from_days: years begin in March, so that the leap day is the last.
    let days = realtime_ns.div_euclid(NS_PER_SECOND).div_euclid(SECONDS_PER_DAY) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
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
            assert_eq!(utc(seconds * NS_PER_SECOND), text);
        }
        assert_eq!(utc(0), "");
        assert_eq!(date(-1), "1969-12-31");
    }
}
