//! Finds the functions in which the locks of Rust and Go wait, in a process or in a program.
//!
//! These locks take no function of the C library when they are free, so only waits can be recorded. The
//! program is a file of the process's owner, so [`TargetFiles`] opens and parses it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use object::read::ReadCache;
use trace_format::user_functions::SLOW_PATHS;

use crate::{
    names::files::{FileId, FileOwner, Language, MAX_OFFSETS, TargetFiles, language},
    preload::fitness::{self, program_of},
    sources::LockSources,
    sources::pthread::ProbedFile,
    system::maps,
};

/// A program of Rust or Go.
#[derive(Clone, Debug)]
pub(crate) struct LanguageProgram {
    /// The path as the process sees it.
    pub(crate) path: PathBuf,
    pub(crate) language: Language,
    /// The opened file; `None` for a command's, until it is needed.
    file: Option<FileId>,
    /// Its slow paths, or why they cannot be probed; `None` if they were not asked for.
    pub(crate) probed: Option<Result<ProbedFile, String>>,
}

impl LanguageProgram {
    #[cfg(test)]
    pub(crate) fn of_test(language: Language, probed: Option<Result<ProbedFile, String>>) -> Self {
        Self { path: PathBuf::from("/app"), language, file: None, probed }
    }

    /// Finds the slow paths of the program, if its locks are among `locks`.
    pub(crate) fn find_slow_paths(&mut self, locks: LockSources, files: &mut TargetFiles) {
        let is_chosen = match self.language {
            Language::Rust => locks.rust,
            Language::Go => locks.go,
        };
        self.probed = is_chosen.then(|| self.slow_paths(files));
    }

    fn slow_paths(&mut self, files: &mut TargetFiles) -> Result<ProbedFile, String> {
        let file = match self.file {
            Some(file) => file,
            None => {
                let opened = fitness::open(&self.path).map_err(|error| error.to_string())?;
                files.add_own(&self.path.to_string_lossy(), opened)?
            }
        };
        self.file = Some(file);
        let found = files.slow_paths(file, self.language)?;
        let known = |symbol: &str| SLOW_PATHS.iter().find(|function| function.symbol == symbol);
        let mut functions: Vec<_> = found
            .into_iter()
            .filter(|found| found.offsets.len() <= MAX_OFFSETS)
            .filter_map(|found| Some((*known(&found.symbol)?, found.offsets)))
            .collect();
        functions.sort_by_key(|(function, _)| SLOW_PATHS.iter().position(|known| known == function));
        Ok(ProbedFile { path: self.path.clone(), file: files.descriptor(file), functions })
    }

    pub(crate) fn to_probe(&self) -> Option<&ProbedFile> {
        self.probed.as_ref()?.as_ref().ok()
    }
}

/// Returns the program of a process, if it is of Rust or Go.
pub(crate) fn of_process(pid: u32, files: &mut TargetFiles) -> Option<LanguageProgram> {
    // The program is mapped below its libraries.
    let mapped = maps::find(pid, |mapping| mapping.executable && mapping.inode != 0).ok()?;
    let program = mapped.first()?;
    let file = files.open(FileOwner::of(pid), program).ok()?;
    let language = files.language(file)?;
    Some(LanguageProgram { path: PathBuf::from(&*program.path), language, file: Some(file), probed: None })
}

/// Returns the program of a command, if it is of Rust or Go. The command will run with klock's rights, so
/// klock itself reads its headers.
pub(crate) fn of_command(program: &Path) -> Option<LanguageProgram> {
    let path = program_of(program);
    let language = language(&ReadCache::new(fitness::open(&path).ok()?))?;
    Some(LanguageProgram { path, language, file: None, probed: None })
}

// Locks that a recording does not see, by the language that the command or a process is written in.
//
// The programs and the recorded sources enter, sentences leave: what is not seen, and the way to see it.

/// Returns a sentence on the locks of each program that are not seen. `recorded` are the sources that are
/// recorded in the end, and the PID of a program is `None` for the command.
pub(crate) fn locks_of<'a>(
    programs: impl IntoIterator<Item = (Option<u32>, &'a LanguageProgram)>,
    recorded: LockSources,
) -> Vec<String> {
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    let mut sentences = Vec::new();
    for (pid, program) in programs {
        if seen.insert(program.path.clone()) {
            let target = pid.map_or_else(|| "COMMAND".to_owned(), |pid| format!("-p {pid}"));
            sentences.extend(sentence(program, recorded, &target));
        }
    }
    sentences
}

fn sentence(program: &LanguageProgram, recorded: LockSources, target: &str) -> Option<String> {
    let is_probed = match program.language {
        Language::Rust => recorded.rust,
        Language::Go => recorded.go,
    };
    if is_probed && program.to_probe().is_some() {
        return None;
    }
    let path = program.path.display();
    let refused = match &program.probed {
        Some(Err(why)) => Some(why),
        _ => None,
    };
    match (program.language, refused) {
        (Language::Go, refused) => {
            let futexes = if recorded.futex { ", and its futexes are those of the scheduler" } else { "" };
            let way = match refused {
                Some(why) => format!(
                    "which klock cannot probe here: {why}; its mutex profile shows such waits (runtime.SetMutexProfileFraction, go tool pprof)"
                ),
                None => format!(
                    "which klock sees only by probes in the program; record it as root: sudo klock record --locks go {target}"
                ),
            };
            Some(format!(
                "{path} is a Go program{futexes}: a goroutine that waits for a sync.Mutex is parked in Go's runtime, {way}"
            ))
        }
        (Language::Rust, Some(why)) if recorded.futex => Some(format!(
            "{path} is a Rust program, and the locks of its standard library cannot be told from other futexes: {why}"
        )),
        (Language::Rust, _) if recorded.futex => None,
        (Language::Rust, _) => Some(format!(
            "{path} is a Rust program: the locks of its standard library are futexes, which are not recorded; record them as root: sudo klock \
             record --locks rust,futex {target}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use trace_format::user_functions::RUST_MUTEX;

    use super::*;

    const RUST: LockSources = LockSources { rust: true, ..LockSources::NONE };

    #[test]
    fn the_slow_paths_of_a_process_and_of_its_program_are_the_same() {
        let mut files = TargetFiles::default();
        let process = of_process(std::process::id(), &mut files).unwrap();
        let mut functions = |mut program: LanguageProgram| {
            assert_eq!(program.language, Language::Rust);
            program.find_slow_paths(LockSources::NONE, &mut files);
            assert!(program.probed.is_none());
            program.find_slow_paths(RUST, &mut files);
            program.to_probe().unwrap().functions.clone()
        };
        let of_process = functions(process);
        let of_command = functions(of_command(&std::env::current_exe().unwrap()).unwrap());
        assert_eq!(of_process, of_command);
        assert!(of_process.iter().any(|(function, _)| function.symbol == RUST_MUTEX));
    }

    #[test]
    fn a_program_of_c_and_a_file_that_is_no_program_are_of_neither_language() {
        for path in ["/bin/true", "/etc/passwd", "/no/such/file"] {
            assert!(of_command(Path::new(path)).is_none(), "{path}");
        }
    }
}

#[cfg(test)]
mod unseen_tests {
    use super::*;

    fn sentences(program: &LanguageProgram, recorded: LockSources) -> Vec<String> {
        locks_of([(Some(7), program), (None, program)], recorded)
    }

    const FUTEX: LockSources = LockSources { futex: true, ..LockSources::NONE };

    #[test]
    fn only_futexes_or_probes_show_the_locks_of_rust() {
        let rust = LanguageProgram::of_test(Language::Rust, None);
        let said = sentences(&rust, LockSources { pthread: true, ..LockSources::NONE });
        assert_eq!(said.len(), 1, "the program is named once: {said:?}");
        assert!(said[0].contains("Rust") && said[0].contains("--locks rust,futex -p 7"), "{said:?}");
        assert!(sentences(&rust, FUTEX).is_empty());
    }

    #[test]
    fn a_go_program_whose_locks_are_not_probed_gets_the_option_and_one_that_cannot_be_probed_the_reason() {
        let said = sentences(&LanguageProgram::of_test(Language::Go, None), FUTEX);
        assert!(said[0].contains("sudo klock record --locks go -p 7"), "{said:?}");
        assert!(said[0].contains("those of the scheduler"), "{said:?}");
        let stripped = LanguageProgram::of_test(Language::Go, Some(Err("it has no symbol table".to_owned())));
        let said = sentences(&stripped, LockSources { go: true, ..FUTEX });
        assert!(said[0].contains("it has no symbol table") && said[0].contains("mutex profile"), "{said:?}");
    }
}
