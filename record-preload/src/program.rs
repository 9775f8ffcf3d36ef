//! Whether a program can record itself, by its file. Read before the program is started, and only if it is a
//! regular file.

use core::{
    ffi::{CStr, c_char},
    mem::MaybeUninit,
};

use trace_format::preload::Unrecorded;

use crate::{restrictions, sys};

/// Bytes that are read: the header of an ELF file and the program headers, which follow it.
const HEAD_BYTES: usize = 1024;
const ELF_64: u8 = 2;
/// The type of the program header with the path of the loader.
const INTERPRETER: u32 = 3;

/// Returns the reason why the program at this path does not record itself, if that is known. Null is no path.
pub(crate) unsafe fn reason_of(path: *const c_char) -> Option<Unrecorded> {
    let _permit = (!path.is_null()).then(restrictions::permit).flatten()?;
    let errno = sys::errno();
    // SAFETY: a string.
    let reason = unsafe { by_file(CStr::from_ptr(path)) };
    sys::set_errno(errno);
    reason
}

fn by_file(path: &CStr) -> Option<Unrecorded> {
    let mut facts = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel reads the path and writes the facts.
    let facts = unsafe {
        sys::stat(path.as_ptr() as usize, facts.as_mut_ptr()).then_some(())?;
        facts.assume_init()
    };
    if facts.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    // SAFETY: reads the user of this process.
    let user = unsafe { sys::call3(libc::SYS_geteuid, 0, 0, 0) };
    if facts.st_mode & libc::S_ISUID != 0 && facts.st_uid as isize != user {
        return Some(Unrecorded::GainsRights);
    }
    let file = sys::open(path)?;
    let mut head = [0_u8; HEAD_BYTES];
    let arguments = [file.number() as usize, head.as_mut_ptr() as usize, HEAD_BYTES, 0, 0, 0];
    // SAFETY: the kernel writes no more than the bytes of the head.
    let read = unsafe { sys::call(libc::SYS_pread64, arguments) };
    by_head(head.get(..usize::try_from(read).ok()?)?)
}

/// Returns the reason by the first bytes of the file.
fn by_head(head: &[u8]) -> Option<Unrecorded> {
    head.strip_prefix(b"\x7fELF")?;
    if *head.get(4)? != ELF_64 {
        return Some(Unrecorded::OtherMachine);
    }
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*head.get(at..)?.first_chunk()?)));
    let start = usize::try_from(u64::from_le_bytes(*head.get(32..)?.first_chunk()?)).ok()?;
    let (bytes, count) = (half(54)?, half(56)?);
    for index in 0..count {
        let at = index.checked_mul(bytes).and_then(|at| at.checked_add(start))?;
        if u32::from_le_bytes(*head.get(at..)?.first_chunk()?) == INTERPRETER {
            return None;
        }
    }
    Some(Unrecorded::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with program headers of these types.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        (head[32], head[54], head[56]) = (64, 56, types.len() as u8);
        for kind in types {
            head.extend(kind.to_le_bytes());
            head.extend([0; 52]);
        }
        head
    }

    #[test]
    fn a_program_without_a_loader_is_static_and_one_of_32_bits_is_for_another_machine() {
        assert_eq!(by_head(&elf(&[1, 1])), Some(Unrecorded::Static));
        assert_eq!(by_head(&elf(&[6, INTERPRETER, 1])), None);
        let mut small = elf(&[1]);
        small[4] = 1;
        assert_eq!(by_head(&small), Some(Unrecorded::OtherMachine));
    }

    #[test]
    fn of_scripts_and_of_parts_of_headers_nothing_is_known() {
        assert_eq!(by_head(b"#!/bin/sh\n"), None);
        // All headers must be there to say that none names a loader.
        let whole = elf(&[1, 1]);
        assert!((0..64 + 56 + 4).all(|end| by_head(&whole[..end]).is_none()));
    }
}
