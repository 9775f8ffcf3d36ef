//! Limits of time and of failures: the files of one user must not delay or hide the files of others. A file
//! that fails costs its user a strike; a helper's answer takes time from the file's budget.

use std::time::Duration;

use super::{CallError, FileId, FileOwner, LEFT_OUT, MAX_STRIKES, TargetFiles, WaitLimit};

/// Maximum time after a recording ended on request, for all files of processes of another user; and if one of
/// them went wrong before.
const MAX_AFTER_STOP: Duration = Duration::from_secs(10);
pub(super) const MAX_AFTER_STOP_AND_STRIKE: Duration = Duration::from_millis(300);

impl TargetFiles {
    /// Describes the files that went wrong in a sentence; `None` if there are none.
    pub(crate) fn describe_failures(&self) -> Option<String> {
        let total: u64 = self.failures.values().sum();
        let mut reasons: Vec<String> =
            self.failures.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        (total > 0).then(|| {
            let files = if total == 1 { "file" } else { "files" };
            format!(
                "{total} mapped {files} could not be examined ({}): no names from there",
                reasons.join(", ")
            )
        })
    }

    /// Returns the process on whose behalf a file is read: of those that map it, one of klock's own user, or
    /// else of the user with the fewest files that went wrong.
    pub(super) fn owner(&self, id: FileId) -> FileOwner {
        let standing = |owner: &&FileOwner| (!is_own_user(owner.uid), self.strikes(owner.uid));
        let owners = &self.file(id).owners;
        owners
            .iter()
            .min_by_key(standing)
            .copied()
            .unwrap_or(FileOwner { pid: 0, uid: FileOwner::UNKNOWN_USER })
    }

    pub(super) fn strikes(&self, uid: u32) -> u32 {
        self.users.get(&uid).map_or(0, |user| user.strikes)
    }

    /// Returns an error if the file, or several files of its user, went wrong before.
    pub(super) fn may_be_read(&self, id: FileId) -> Result<(), String> {
        let file = self.file(id);
        if file.failed || file.left_out || self.strikes(self.owner(id).uid) >= MAX_STRIKES {
            return Err("it failed before".to_owned());
        }
        Ok(())
    }

    /// Takes time from a file's budget. A file without budget went wrong.
    pub(super) fn spend(&mut self, id: FileId, time: Duration) {
        let file = self.file_mut(id);
        file.budget = file.budget.saturating_sub(time);
        if file.budget.is_zero() && !file.failed {
            self.fail(id, &CallError::Timeout);
        }
    }

    pub(super) fn fail(&mut self, id: FileId, error: &CallError) {
        let uid = self.owner(id).uid;
        let is_stopped = matches!(error, CallError::Stopped);
        let file = self.file_mut(id);
        let known = if is_stopped { &mut file.left_out } else { &mut file.failed };
        if std::mem::replace(known, true) {
            return;
        }
        if !is_stopped {
            self.users.entry(uid).or_default().strikes += 1;
        }
        self.count_failure(match error {
            CallError::Stopped => LEFT_OUT,
            CallError::Timeout => "took too long",
            CallError::Died => "crashed their parser",
            CallError::Start(_) => "without a helper process",
        });
    }

    /// Returns how long a helper may take for a file of a process of this user.
    pub(super) fn wait_limit(&self, uid: u32, limit: Duration) -> WaitLimit {
        let after_stop = if is_own_user(uid) {
            Duration::MAX
        } else if self.strikes(uid) > 0 {
            MAX_AFTER_STOP_AND_STRIKE
        } else {
            MAX_AFTER_STOP
        };
        WaitLimit { limit, after_stop, stop: self.stop.clone() }
    }

    pub(super) fn count_failure(&mut self, reason: &'static str) {
        *self.failures.entry(reason).or_default() += 1;
    }
}

/// Whether this is the user that klock runs as.
fn is_own_user(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}
