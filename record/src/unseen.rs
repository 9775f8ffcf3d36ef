//! Locks that a recording does not see, by the language that the command or a process is written in.
//!
//! The program's language and the recorded sources enter, a sentence leaves: what is not seen, and the way to see it.

use std::{collections::BTreeSet, fs, path::Path};

use object::read::ReadCache;

use crate::{
    maps,
    options::LockSources,
    preload::fitness::program_of,
    target_files::{FileOwner, Language, TargetFiles, language},
};

/// Returns a sentence on the locks of a command that are not seen, if its language has such locks. `recorded` are the sources that are
/// recorded in the end. The command will run with klock's rights, so klock itself reads its file.
pub(crate) fn locks_of_command(program: &Path, recorded: LockSources) -> Option<String> {
    let program = program_of(program);
    let language = language(&ReadCache::new(fs::File::open(&program).ok()?))?;
    sentence(&program.display().to_string(), language, recorded, "COMMAND")
}

/// Returns such a sentence for each program that these processes run.
pub(crate) fn locks_of_processes(
    processes: &[u32],
    recorded: LockSources,
    files: &mut TargetFiles,
) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut locks_of = |&pid: &u32| {
        // The program is mapped below its libraries.
        let mapped = maps::find(pid, |mapping| mapping.executable && mapping.inode != 0).ok()?;
        let program = mapped.first().filter(|program| seen.insert((program.device, program.inode)))?;
        let file = files.open(FileOwner::of(pid), program).ok()?;
        let language = files.language(file)?;
        sentence(&program.path, language, recorded, &format!("-p {pid}"))
    };
    processes.iter().filter_map(&mut locks_of).collect()
}

fn sentence(path: &str, language: Language, recorded: LockSources, target: &str) -> Option<String> {
    match language {
        Language::Go => Some(format!(
            "{path} is a Go program: a goroutine that waits for a sync.Mutex is parked in Go's runtime, which klock does not see{}; its mutex profile \
             shows such waits (runtime.SetMutexProfileFraction, go tool pprof)",
            if recorded.futex { ", and its futexes are those of the scheduler" } else { "" }
        )),
        Language::Rust if !recorded.futex => Some(format!(
            "{path} is a Rust program: the locks of its standard library are futexes, which are not recorded; record them as root: sudo klock \
             record --locks futex,pthread {target}"
        )),
        Language::Rust => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rust_program_is_known_by_its_comment_and_only_its_futexes_show_its_locks() {
        let own = std::env::current_exe().unwrap();
        let sentence = locks_of_command(&own, LockSources { pthread: true, ..LockSources::NONE }).unwrap();
        assert!(sentence.contains("Rust") && sentence.contains("--locks futex"), "{sentence}");
        assert_eq!(locks_of_command(&own, LockSources { futex: true, ..LockSources::NONE }), None);
    }

    #[test]
    fn a_rust_process_is_known_and_named_once() {
        let mut files = TargetFiles::default();
        let own = std::process::id();
        let sentences = locks_of_processes(&[own, own], LockSources::NONE, &mut files);
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(
            sentences[0].contains("Rust") && sentences[0].contains(&format!("-p {own}")),
            "{sentences:?}"
        );
    }

    #[test]
    fn a_c_program_and_a_file_that_is_no_program_have_no_unseen_locks() {
        for path in ["/bin/true", "/etc/passwd", "/no/such/file"] {
            assert_eq!(locks_of_command(Path::new(path), LockSources::NONE), None, "{path}");
        }
    }
}
