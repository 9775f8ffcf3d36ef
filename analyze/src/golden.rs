//! Expected files of tests. `KLOCK_BLESS=1 cargo test -p analyze` rewrites them; `git diff` shows how they
//! changed.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns a path in `analyze/`.
pub(crate) fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether a file is as expected; after it was rewritten, it is.
pub(crate) fn is_expected(path: &Path, found: &str) -> bool {
    if std::env::var_os("KLOCK_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, found).unwrap();
    }
    fs::read_to_string(path).unwrap_or_default() == found
}

/// Fails if a file is not as expected.
pub(crate) fn expect(path: &Path, found: &str) {
    assert!(
        is_expected(path, found),
        "{} has changed; look at it, rewrite it with KLOCK_BLESS=1, and check `git diff`",
        path.display()
    );
}
