//! The language of a program, by what its linker leaves in every program: Go's build information, or rustc's name in the comments.

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
