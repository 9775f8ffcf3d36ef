//! Determines what this machine can record, for `klock check`.

use std::path::Path;

use rustix::thread::CapabilitySet;
use trace_format::output::{self, OutputOptions};

use crate::{
    names::files as target_files,
    options::{KernelDepth, ProbePreference},
    preload::{self, library},
    setup::{
        host::HostFacts,
        plan::{Plan, PlanError, Selection},
    },
    sources::switches,
};

/// The result of [`check`].
#[derive(Clone, Debug)]
pub struct Check {
    /// The facts about this machine.
    pub facts: HostFacts,
    /// The default plan, or why nothing can be recorded.
    pub plan: Result<Plan, PlanError>,
    /// A description of how a program that klock starts records its own calls, which works on every machine.
    pub preload: String,
    /// The way in which the off-CPU time of a command's threads is recorded by default.
    pub sched: String,
    /// Why the default plan leaves kernel locks out, if it does.
    pub left_out: Option<PlanError>,
    /// The ways in which this setup protects less than it could, a line each.
    pub weaknesses: Vec<String>,
    /// The plan with `--locks kernel`, which records holds of kernel locks.
    pub holds: Result<Plan, PlanError>,
}

/// Collects the facts about this machine and plans a recording of everything. `output` are the rules for an
/// output in the working directory.
pub fn check(output: &OutputOptions) -> Check {
    let facts = HostFacts::gather();
    let plan_with = |kernel| Plan::new(&facts, &Selection { kernel, ..Selection::everything() });
    let (plan, left_out) = match plan_with(Some(KernelDepth::Waits)) {
        Err(error @ PlanError::NoContention { .. }) => (plan_with(None), Some(error)),
        plan => (plan, None),
    };
    let holds = plan_with(Some(KernelDepth::Holds(ProbePreference::Auto)));
    let sched = sched(&facts, plan.is_ok());
    let weaknesses = SafetyFacts::gather(&facts, output).weaknesses();
    Check { facts, weaknesses, plan, preload: preload::description(), sched, left_out, holds }
}

/// Describes, for people, how the off-CPU time of a command's threads is recorded by default.
fn sched(facts: &HostFacts, has_plan: bool) -> String {
    if has_plan {
        return "of its threads, by a BPF program; with stacks and wakers on request (--off-cpu=all)"
            .to_owned();
    }
    match switches::check(facts.perf_event_paranoid) {
        Ok(()) => "of threads that hold a lock, by the kernel's switch records; no root needed".to_owned(),
        Err(refusal) => format!("no: {refusal}"),
    }
}

// The ways in which the present setup protects klock or the recorded programs less than it could
// (docs/security.md), each with the next step. Reads facts, changes nothing.

/// The facts that decide how well a setup protects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SafetyFacts {
    /// The kernel's major and minor version.
    pub kernel: Option<(u32, u32)>,
    pub capabilities: Option<CapabilitySet>,
    /// Whether the kernel filters system calls.
    pub has_seccomp: bool,
    pub has_landlock: bool,
    /// Why the first directory for the library is not used, or cannot be.
    pub library: Option<String>,
    /// Why root does not write into the working directory.
    pub output: Option<String>,
    /// `kernel.kptr_restrict`
    pub kptr_restrict: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`
    pub unprivileged_bpf_disabled: Option<i64>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<i64>,
}

impl SafetyFacts {
    /// Collects the facts. `options` name an output in the working directory.
    pub(crate) fn gather(host: &HostFacts, options: &OutputOptions) -> Self {
        Self {
            kernel: host.version(),
            capabilities: host.capabilities,
            has_seccomp: target_files::has_seccomp(),
            has_landlock: target_files::has_landlock(),
            library: library::first_refusal(),
            output: output::check_directory(Path::new("trace.parquet"), options)
                .err()
                .map(|error| error.to_string()),
            kptr_restrict: host.kptr_restrict,
            unprivileged_bpf_disabled: host.unprivileged_bpf_disabled,
            ptrace_scope: host.ptrace_scope,
        }
    }

    /// Returns a line for each weakness.
    pub(crate) fn weaknesses(&self) -> Vec<String> {
        let lacks = |wanted: CapabilitySet| self.capabilities.is_some_and(|all| !all.intersects(wanted));
        let mut lines = Vec::new();
        let mut add = |is_weak: bool, line: &str| {
            if is_weak {
                lines.push(line.to_owned());
            }
        };
        add(
            self.kernel.is_some_and(|version| version < (6, 5)),
            "a process that joins a recording is identified by its PID and start time, which another process can take over between \
             two calls (Linux before 6.5); use a newer kernel if other users run programs here",
        );
        add(
            lacks(CapabilitySet::SYS_ADMIN | CapabilitySet::CHECKPOINT_RESTORE),
            "files of processes are found by their path (no CAP_CHECKPOINT_RESTORE), so replaced files give no names; run klock as \
             root, or give it that capability",
        );
        add(
            lacks(CapabilitySet::SETUID),
            "files of processes are parsed with your user id (no CAP_SETUID); run klock as root if programs of other users are \
             recorded",
        );
        add(
            !self.has_seccomp,
            "files of processes are not parsed, because the kernel has no seccomp filters; use a kernel with \
             CONFIG_SECCOMP_FILTER",
        );
        add(
            !self.has_landlock,
            "the process that parses files is not restricted by Landlock (Linux before 5.13, or disabled); add landlock to the \
             kernel's parameter lsm=",
        );
        add(
            self.unprivileged_bpf_disabled == Some(0),
            "every user may load BPF programs; run `sysctl kernel.unprivileged_bpf_disabled=2`",
        );
        add(
            self.kptr_restrict == Some(0)
                && self.capabilities.is_some_and(|all| all.contains(CapabilitySet::SYSLOG)),
            "privileged programs print kernel addresses, although traces hide them; run `sysctl kernel.kptr_restrict=1`",
        );
        // Only root can trace a klock with capabilities.
        add(
            self.ptrace_scope.unwrap_or(0) == 0 && self.capabilities.is_some_and(|all| all.is_empty()),
            "the programs that klock records can change its memory, because all programs of your user can trace each other; run \
             `sysctl kernel.yama.ptrace_scope=1` (needs CONFIG_SECURITY_YAMA)",
        );
        let refusals = [
            ("the library's first directory is not used", &self.library),
            ("the working directory is refused", &self.output),
        ];
        lines.extend(refusals.iter().filter_map(|(what, why)| Some(format!("{what}: {}", why.as_ref()?))));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strong() -> SafetyFacts {
        SafetyFacts {
            kernel: Some((6, 5)),
            capabilities: Some(CapabilitySet::all()),
            has_seccomp: true,
            has_landlock: true,
            library: None,
            output: None,
            kptr_restrict: Some(1),
            unprivileged_bpf_disabled: Some(2),
            ptrace_scope: Some(1),
        }
    }

    #[test]
    fn a_setup_without_weaknesses_has_no_lines() {
        assert_eq!(strong().weaknesses(), [] as [&str; 0]);
        let unknown = SafetyFacts { kernel: None, capabilities: None, kptr_restrict: None, ..strong() };
        assert_eq!(unknown.weaknesses(), [] as [&str; 0]);
    }

    #[test]
    fn programs_of_a_user_without_capabilities_can_trace_klock_unless_yama_forbids_it() {
        let user = |ptrace_scope| {
            let capabilities = Some(CapabilitySet::empty());
            let facts = SafetyFacts { capabilities, ptrace_scope, ..strong() };
            facts.weaknesses().iter().any(|line| line.contains("can trace each other"))
        };
        assert_eq!([None, Some(0), Some(1), Some(2)].map(user), [true, true, false, false]);
        let root = SafetyFacts { ptrace_scope: Some(0), ..strong() };
        assert_eq!(root.weaknesses(), [] as [&str; 0]);
    }

    #[test]
    fn each_weakness_is_a_line_with_the_next_step() {
        let without = |taken| Some(CapabilitySet::all() - taken);
        let both = CapabilitySet::SYS_ADMIN | CapabilitySet::CHECKPOINT_RESTORE;
        for (weak, words) in [
            (SafetyFacts { kernel: Some((6, 4)), ..strong() }, ["before 6.5", "newer kernel"]),
            (
                SafetyFacts { capabilities: without(both), ..strong() },
                ["by their path", "CAP_CHECKPOINT_RESTORE"],
            ),
            (
                SafetyFacts { capabilities: without(CapabilitySet::SETUID), ..strong() },
                ["your user id", "root"],
            ),
            (SafetyFacts { has_seccomp: false, ..strong() }, ["not parsed", "CONFIG_SECCOMP_FILTER"]),
            (SafetyFacts { has_landlock: false, ..strong() }, ["Landlock", "lsm="]),
            (SafetyFacts { unprivileged_bpf_disabled: Some(0), ..strong() }, ["BPF", "sysctl"]),
            (SafetyFacts { kptr_restrict: Some(0), ..strong() }, ["kernel addresses", "sysctl"]),
            (SafetyFacts { library: Some("noexec; set HOME".into()), ..strong() }, ["library", "set HOME"]),
            (
                SafetyFacts { output: Some("every user; use -f".into()), ..strong() },
                ["working directory", "use -f"],
            ),
        ] {
            let lines = weak.weaknesses();
            assert!(lines.len() == 1 && words.iter().all(|word| lines[0].contains(word)), "{lines:?}");
        }
    }
}
