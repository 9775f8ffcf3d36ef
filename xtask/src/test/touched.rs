//! Which parts of the full size belong to which files, for `--touched`.

use anyhow::Result;

use super::parts::{LINT, ONE_GUEST};
use crate::process::Run;

/// Beginnings of paths, and the parts that a change below them runs. A change of anything else is covered by
/// the small size.
const PARTS: &[(&str, &[&str])] = &[
    ("", &[LINT]),
    ("record-ebpf/", &[ONE_GUEST]),
    ("record/bpf/", &[ONE_GUEST]),
    ("record/src/kernel/load", &[ONE_GUEST]),
    ("record/src/setup/plan", &[ONE_GUEST]),
    ("record/src/sources", &[ONE_GUEST]),
    ("trace-format/src/wire", &[ONE_GUEST]),
    ("analyze/page/", &["page is current", "page in full"]),
    ("analyze/src/export/", &["viewers in full"]),
    ("analyze/tables/src/rollup", &["fleet in full"]),
    ("sql/", &["fleet in full"]),
    ("docs/notebook.ipynb", &["notebook in full"]),
];

/// Returns the parts that belong to these files, given as paths below the workspace.
pub(super) fn parts(files: &[String]) -> Vec<&'static str> {
    let is_touched = |prefix: &str| files.iter().any(|file| file.starts_with(prefix));
    PARTS.iter().filter(|(prefix, _)| is_touched(prefix)).flat_map(|(_, parts)| *parts).copied().collect()
}

/// Returns the files that differ from the last commit that the checkout shares with the main branch. On the
/// main branch itself, the files of the commits of the last day.
pub(super) fn files() -> Result<Vec<String>> {
    let git = |words: &[&str]| Run::new("git", words).read();
    let head = git(&["rev-parse", "HEAD"])?;
    let shared = |main: &&str| git(&["merge-base", "HEAD", main]).ok().filter(|commit| *commit != head);
    let base = match ["origin/main", "main"].iter().find_map(shared) {
        Some(base) => base,
        None => git(&["rev-list", "-1", "--before=1 day ago", "HEAD"])?,
    };
    // A clone without older commits: all files.
    let base = if base.trim().is_empty() { git(&["hash-object", "-t", "tree", "/dev/null"])? } else { base };
    let changed = git(&["diff", "--name-only", base.trim()])?;
    Ok(changed.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::parts;

    #[test]
    fn a_change_of_what_runs_in_the_kernel_boots_a_guest() {
        let of = |file: &str| parts(&[file.to_owned()]);
        assert_eq!(of("record-ebpf/src/probes/futex.rs"), [LINT, ONE_GUEST]);
        assert_eq!(of("trace-format/src/wire/code.rs"), [LINT, ONE_GUEST]);
        assert_eq!(of("analyze/tables/src/report.rs"), [LINT]);
    }

    #[test]
    fn every_named_part_exists() {
        let all = parts::all().unwrap();
        for name in PARTS.iter().flat_map(|(_, parts)| *parts) {
            assert!(all.iter().any(|part| part.name == *name), "no part {name}");
        }
    }
}
