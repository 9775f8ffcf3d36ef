//! Determines whether the kernel preempts tasks inside the kernel, from files below /proc, /sys and /boot.
//!
//! It matters for fentry and fexit: if a task is preempted inside such a program, the kernel skips the program for every other
//! task on that CPU until the task continues (`__bpf_prog_enter_recur`, `kernel/bpf/trampoline.c`, 5.12 to 7.2).

use std::fs;

/// Returns the answer for this machine; `None` if it is unknown.
pub(crate) fn of_this_kernel() -> Option<bool> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let release = read("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    Evidence {
        current_mode: read("/sys/kernel/debug/sched/preempt"),
        command_line: read("/proc/cmdline"),
        version: read("/proc/sys/kernel/version"),
        config: read(&format!("/boot/config-{release}")),
        release: release.to_owned(),
    }
    .preempts()
}

/// The contents of the files that may give the answer.
#[derive(Debug, Default)]
struct Evidence {
    /// `none (voluntary) full lazy`, where debugfs is mounted.
    current_mode: Option<String>,
    command_line: Option<String>,
    /// As `uname -v` prints it.
    version: Option<String>,
    /// The configuration that the kernel was built with.
    config: Option<String>,
    release: String,
}

impl Evidence {
    fn preempts(&self) -> Option<bool> {
        let bracketed = |text: &String| mode_preempts(text.split_once('(')?.1.split_once(')')?.0);
        if let Some(answer) = self.current_mode.as_ref().and_then(bracketed) {
            return Some(answer);
        }
        // Kernels that are built without preemption do not mention it.
        if !self.version.as_ref()?.contains("PREEMPT") {
            return Some(false);
        }
        // If the option is given twice, the kernel uses the last one.
        let mut words = self.command_line.iter().flat_map(|line| line.split_whitespace()).rev();
        if let Some(answer) = words.find_map(|word| mode_preempts(word.strip_prefix("preempt=")?)) {
            return Some(answer);
        }
        if let Some(config) = &self.config {
            let has = |option: &str| config.lines().any(|line| line == format!("CONFIG_PREEMPT{option}=y"));
            return Some(!has("_NONE") && !has("_VOLUNTARY"));
        }
        // 7.0 removed the other modes on architectures that support lazy preemption.
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

    fn dynamic(release: &str) -> Evidence {
        let version = Some("#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-06-01)\n".to_owned());
        Evidence { version, release: release.to_owned(), ..Evidence::default() }
    }

    #[test]
    fn the_current_mode_overrides_the_command_line_which_overrides_the_configuration() {
        let mut evidence = dynamic("6.12.0");
        assert_eq!(evidence.preempts(), None);
        evidence.config = Some("CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_VOLUNTARY=y\n".to_owned());
        assert_eq!(evidence.preempts(), Some(false));
        evidence.command_line = Some("quiet preempt=full\n".to_owned());
        assert_eq!(evidence.preempts(), Some(true));
        evidence.current_mode = Some("none (voluntary) full\n".to_owned());
        assert_eq!(evidence.preempts(), Some(false));
    }

    #[test]
    fn a_kernel_that_does_not_mention_preemption_has_none_and_a_new_kernel_always_has_it() {
        let plain = Evidence { version: Some("#1 SMP Debian".to_owned()), ..dynamic("5.10.0") };
        assert_eq!(plain.preempts(), Some(false));
        assert_eq!(dynamic("7.2.13+deb14").preempts(), Some(true));
    }
}
