//! The language of a program, by what its linker leaves in every program: Go's build information, or rustc's
//! name in the comments.

use object::{
    Endianness, elf,
    read::{
        ReadRef,
        elf::{FileHeader as _, SectionHeader as _},
    },
};
use serde::{Deserialize, Serialize};

/// A language whose library has locks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Language {
    Go,
    Rust,
}

/// Returns the language of a program, if it is one of these.
pub(crate) fn language<'data, R: ReadRef<'data>>(data: R) -> Option<Language> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let has = |name: &[u8]| sections.section_by_name(endian, name).is_some();
    if has(b".go.buildinfo") || has(b".note.go.buildid") {
        return Some(Language::Go);
    }
    let (_, comment) = sections.section_by_name(endian, b".comment")?;
    let comment = comment.data(endian, data).ok()?;
    comment.windows(5).any(|word| word == b"rustc").then_some(Language::Rust)
}

// Readable names of symbols. A mangled symbol enters, the name of the source leaves; every other name stays
// as it is.

/// Demangles a symbol of C++ or Rust. A name without a mangling prefix is one of C: `f` is no `float`.
pub(super) fn demangled(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Some(format!("{rust:#}"));
    }
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_and_cpp_are_readable() {
        assert_eq!(demangled("_ZN3foo3barE").as_deref(), Some("foo::bar"));
        assert_eq!(demangled("_Z4workPKc").as_deref(), Some("work(char const*)"));
        assert_eq!(demangled("_ZN3app3run17h0123456789abcdefE").as_deref(), Some("app::run"));
        assert_eq!(demangled("_RNvCs1234_7mycrate3foo").as_deref(), Some("mycrate::foo"));
    }

    #[test]
    fn names_of_c_stay_though_they_encode_types() {
        for name in ["f", "d", "v", "i", "b", "w", "Pc", "plain", "RNvC6_123foo3bar", "ZN3foo3barE", ""] {
            assert_eq!(demangled(name), None, "{name}");
        }
    }
}
