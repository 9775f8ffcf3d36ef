//! Locks that a recording does not see, by the language that the command or a process is written in.
//!
//! The programs and the recorded sources enter, sentences leave: what is not seen, and the way to see it.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{names::files::Language, options::LockSources, sources::languages::LanguageProgram};

/// Returns a sentence on the locks of each program that are not seen. `recorded` are the sources that are recorded in the end, and the
/// PID of a program is `None` for the command.
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
