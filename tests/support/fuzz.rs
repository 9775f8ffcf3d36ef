//! Fuzz targets: functions that accept any bytes. `cargo test` runs each on the files of
//! `fixtures/fuzz/NAME`. `cargo xtask test --full fuzz` lets libFuzzer change these files for two minutes
//! each.

/// Declares a target.
macro_rules! fuzz_target {
    ($name:ident, $run:expr) => {
        #[test]
        fn $name() {
            #[cfg(fuzzing)]
            bolero::check!().for_each($run);
            #[cfg(not(fuzzing))]
            $crate::fuzz::replay(stringify!($name), $run);
        }
    };
}

/// Runs a target on each file of its corpus.
#[cfg(not(fuzzing))]
pub(crate) fn replay(name: &str, run: impl Fn(&[u8])) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fuzz").join(name);
    let inputs = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for input in inputs {
        let bytes = std::fs::read(&input).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&bytes)));
        assert!(result.is_ok(), "the target fails on {}", input.display());
        count += 1;
    }
    assert!(count > 0, "{} has no files", corpus.display());
}
