//! What a part needs of the machine, as the head of a test file states it: `//! needs: root, gcc, stress-ng`.

use std::fmt;

use crate::{host, process::has, setup};

/// A requirement of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// `root`.
    Root,
    /// `python`: the Python environment with its packages.
    Python,
    /// `viewers`: the npm packages that open exports.
    Viewers,
    /// A file name that begins with `lib`: a shared library.
    Library(String),
    /// Any other word: a program of this name.
    Program(String),
}

impl Need {
    pub(super) fn parse(word: &str) -> Self {
        match word {
            "root" => Self::Root,
            "python" => Self::Python,
            "viewers" => Self::Viewers,
            library if library.starts_with("lib") => Self::Library(library.to_owned()),
            program => Self::Program(program.to_owned()),
        }
    }

    fn is_met(&self) -> bool {
        match self {
            Self::Root => host::is_root(),
            Self::Python => setup::has_engines(),
            Self::Viewers => setup::has_viewers(),
            Self::Library(library) => setup::has_library(library),
            Self::Program(program) => has(program),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Python => f.write_str("the Python environment"),
            Self::Viewers => f.write_str("the npm packages of viewers"),
            Self::Library(name) | Self::Program(name) => f.write_str(name),
        }
    }
}

/// Returns the first need that is not met here.
pub(super) fn missing(needs: &[Need]) -> Option<&Need> {
    needs.iter().find(|need| !need.is_met())
}

/// Installs what can be installed, and returns the reasons for which something is still missing.
pub(super) fn install(needs: &[Need]) -> anyhow::Result<Vec<String>> {
    let names: Vec<&str> = needs
        .iter()
        .filter_map(|need| match need {
            Need::Library(name) | Need::Program(name) => Some(name.as_str()),
            Need::Root | Need::Python | Need::Viewers => None,
        })
        .collect();
    let mut reasons = vec![setup::packages(&names)?];
    if needs.contains(&Need::Python) {
        reasons.push(setup::engines()?);
    }
    if needs.contains(&Need::Viewers) {
        reasons.push(setup::viewers()?);
    }
    Ok(reasons.into_iter().flatten().collect())
}
