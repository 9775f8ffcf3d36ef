//! Whether the kernel preempts tasks inside the kernel: files below /proc, /sys and /boot enter, yes, no or "could not
//! tell" leaves.
//!
//! It matters for fentry and fexit: a task that is preempted inside such a program keeps it from running for every other
//! task on that CPU until it goes on (`__bpf_prog_enter_recur`, `kernel/bpf/trampoline.c`, 5.12 to 7.2).

use std::fs;

/// Asks this machine.
pub(crate) fn of_this_kernel() -> Option<bool> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let release = read("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    Sources {
        now: read("/sys/kernel/debug/sched/preempt"),
        command_line: read("/proc/cmdline"),
        version: read("/proc/sys/kernel/version"),
        config: read(&format!("/boot/config-{release}")),
        release: release.to_owned(),
    }
    .answer()
}

/// Where it may stand.
#[derive(Debug, Default)]
struct Sources {
    /// `none (voluntary) full lazy` where debugfs is mounted.
    now: Option<String>,
    command_line: Option<String>,
    /// What `uname -v` prints.
    version: Option<String>,
    /// How the kernel was built.
    config: Option<String>,
    release: String,
}

impl Sources {
    fn answer(&self) -> Option<bool> {
        let chosen = |text: &String| {
            let mode = text.split_once('(')?.1.split_once(')')?.0;
            mode_preempts(mode)
        };
        if let Some(answer) = self.now.as_ref().and_then(chosen) {
            return Some(answer);
        }
        // Kernels that are built without it say so by saying nothing.
        if !self.version.as_ref()?.contains("PREEMPT") {
            return Some(false);
        }
        // The last word counts.
        let mut words = self.command_line.iter().flat_map(|line| line.split_whitespace()).rev();
        if let Some(answer) = words.find_map(|word| mode_preempts(word.strip_prefix("preempt=")?)) {
            return Some(answer);
        }
        if let Some(config) = &self.config {
            let has = |option: &str| config.lines().any(|line| line == format!("CONFIG_PREEMPT{option}=y"));
            return Some(!has("_NONE") && !has("_VOLUNTARY"));
        }
        // The other modes are gone since 7.0, where the architecture can do without them.
        let major: u32 = self.release.split('.').next()?.parse().ok()?;
        (major >= 7).then_some(true)
    }
}

fn mode_preempts(mode: &str) -> Option<bool> {
    match mode {
        "none" | "voluntary" => Some(false),
        "full" | "lazy" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dynamic(release: &str) -> Sources {
        let version = Some("#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-06-01)\n".to_owned());
        Sources { version, release: release.to_owned(), ..Sources::default() }
    }

    #[test]
    fn the_present_mode_counts_most_and_then_the_command_line_and_then_how_it_was_built() {
        let mut sources = dynamic("6.12.0");
        assert_eq!(sources.answer(), None);
        sources.config = Some("CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_VOLUNTARY=y\n".to_owned());
        assert_eq!(sources.answer(), Some(false));
        sources.command_line = Some("quiet preempt=full\n".to_owned());
        assert_eq!(sources.answer(), Some(true));
        sources.now = Some("none (voluntary) full\n".to_owned());
        assert_eq!(sources.answer(), Some(false));
    }

    #[test]
    fn a_kernel_that_says_nothing_of_preemption_has_none_and_a_new_one_always_has() {
        let plain = Sources { version: Some("#1 SMP Debian".to_owned()), ..dynamic("5.10.0") };
        assert_eq!(plain.answer(), Some(false));
        assert_eq!(dynamic("7.2.13+deb14").answer(), Some(true));
    }
}
