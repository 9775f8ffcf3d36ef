//! Counts of passed, failed and skipped tests, and their reading from the output of Rust's test harness.

use crate::process::Outcome;

/// The reason of a part whose program was ended because it hung.
const HUNG: &str = "hung: it was ended after its time limit";

/// The result of a part. A part that is not a test run counts as one test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// Reasons for failures and skips.
    pub(super) reasons: Vec<String>,
}

impl Tally {
    pub(super) fn passed() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self { failed: 1, reasons: vec![reason.into()], ..Self::default() }
    }

    pub(super) fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: 1, reasons: vec![reason.into()], ..Self::default() }
    }

    /// Passed, or skipped because something is missing.
    pub(super) fn unless_missing(missing: Option<String>) -> Self {
        missing.map_or_else(Self::passed, Self::skipped)
    }

    /// The result of a program that is one check.
    pub(super) fn of_check(outcome: &Outcome, what: &str) -> Self {
        match outcome {
            Outcome { timed_out: true, .. } => Self::failed(HUNG),
            Outcome { ok: true, .. } => Self::passed(),
            Outcome { .. } => Self::failed(format!("{what} failed, see above")),
        }
    }

    /// The result of a chore that reports in lines: `skipped: reason` and `fault: reason`.
    pub(super) fn of_chore(outcome: &Outcome, what: &str) -> Self {
        let reasons = |mark: &str| -> Vec<String> {
            outcome.lines.iter().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
        };
        let (skipped, faults) = (reasons("skipped: "), reasons("fault: "));
        if !faults.is_empty() {
            return Self { failed: faults.len() as u64, reasons: faults, ..Self::default() };
        }
        match skipped.into_iter().next() {
            Some(reason) if outcome.ok => Self::skipped(reason),
            _ => Self::of_check(outcome, what),
        }
    }

    /// The result of test programs.
    pub(super) fn of_tests(outcome: &Outcome) -> Self {
        let tally = Self::read(&outcome.lines);
        match outcome {
            Outcome { timed_out: true, .. } => tally.merge(&Self::failed(HUNG)),
            Outcome { ok: false, .. } if tally.failed == 0 => {
                tally.merge(&Self::failed("the tests did not end"))
            }
            Outcome { .. } => tally,
        }
    }

    /// Adds up lines such as `test result: ok. 3 passed; 0 failed; ...`. A test that cannot run here prints
    /// `skipped: reason`, which the harness counts as passed. Ignored tests belong to another part.
    fn read(lines: &[String]) -> Self {
        let mut tally = Self::default();
        for line in lines {
            let mut reason = None;
            if let Some(result) = line.strip_prefix("test result: ") {
                let words: Vec<&str> = result.split([' ', ';', '.']).filter(|w| !w.is_empty()).collect();
                let number = |word: &str| {
                    let pair = words.windows(2).find(|pair| pair[1] == word);
                    pair.and_then(|pair| pair[0].parse::<u64>().ok()).unwrap_or(0)
                };
                tally.passed += number("passed");
                tally.failed += number("failed");
            } else if let Some(skipped) = line.strip_prefix("skipped: ") {
                tally.skipped += 1;
                reason = Some(skipped);
            } else if let Some(name) = line.strip_prefix("    ") {
                // The harness ends with a list of the failed tests.
                let in_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                reason = Some(name).filter(|name| name.contains(['_', ':']) && name.chars().all(in_name));
            }
            if let Some(reason) = reason.filter(|&reason| !tally.reasons.iter().any(|known| known == reason))
            {
                tally.reasons.push(reason.to_owned());
            }
        }
        tally.passed = tally.passed.saturating_sub(tally.skipped);
        tally
    }

    /// Counts skips as failures, for a machine where everything must run.
    pub(super) fn strict(self) -> Self {
        if self.skipped == 0 {
            return self;
        }
        let reasons = self.reasons.iter().map(|reason| format!("skipped under CI=true: {reason}")).collect();
        Self { failed: self.failed + self.skipped, skipped: 0, reasons, ..self }
    }

    pub(super) fn merge(mut self, other: &Self) -> Self {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons.iter().cloned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        Tally::read(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn results_of_several_test_programs_are_added_up() {
        let tally = read(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured",
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (4, 2, 0));
    }

    #[test]
    fn a_test_that_reports_a_skip_is_not_counted_as_passed() {
        let tally = read("skipped: no stress-ng\ntest result: ok. 2 passed; 0 failed; 0 ignored");
        assert_eq!((tally.passed, tally.skipped), (1, 1));
        assert_eq!(tally.reasons, ["no stress-ng"]);
    }

    #[test]
    fn a_skip_is_a_failure_where_everything_must_run() {
        let tally = Tally::skipped("not root").strict();
        assert_eq!((tally.failed, tally.skipped), (1, 0));
    }

    #[test]
    fn the_faults_of_a_chore_count_more_than_its_skips() {
        let lines = ["skipped: no qemu", "fault: 6.1: no events"].map(str::to_owned).to_vec();
        let tally = Tally::of_chore(&Outcome { ok: false, timed_out: false, lines }, "vm");
        assert_eq!((tally.failed, tally.skipped), (1, 0));
    }
}
