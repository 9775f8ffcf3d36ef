//! Copies a file into memory that nobody can shrink, in bounded amounts.
//!
//! A mapping of a file that its owner truncates raises SIGBUS, so a file is read and its copy is mapped.
//! Holes stay holes, so a sparse file costs no memory.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::PathBuf,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap},
};

/// Maximum size of a file. Larger ones are not parsed.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct FileCopy {
    /// A path by which this process can open the copy.
    pub(super) path: PathBuf,
    /// The contents. They stay until the process ends.
    pub(super) bytes: &'static [u8],
    _file: OwnedFd,
}

impl FileCopy {
    /// Copies a file. `directory` is where this process finds its descriptors.
    pub(super) fn of(file: &File, directory: &str) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if length > MAX_FILE_BYTES {
            return Err(io::Error::other("it is larger than 1 GiB"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Some systems demand the flag (`vm.memfd_noexec`); kernels before 6.3 do not know it.
        let copy = memfd_create("klock", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("klock", flags))
            .map(File::from)?;
        ftruncate(&copy, length)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        while let Some((begin, end)) = next_data(file, at, length)? {
            at = begin;
            while at < end {
                let wanted = usize::try_from(end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
                let count = file.read_at(&mut chunk[..wanted], at)?;
                if count == 0 {
                    // It was truncated meanwhile.
                    at = length;
                    break;
                }
                copy.write_all_at(&chunk[..count], at)?;
                at += count as u64;
            }
        }
        fcntl_add_seals(&copy, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
        let bytes = map(&copy, length)?;
        let path = PathBuf::from(format!("{directory}/{}", copy.as_raw_fd()));
        Ok(Self { path, bytes, _file: copy.into() })
    }
}

/// Returns the next part of a file that is not a hole, from an offset on.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= length {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(begin) if begin < length => {
            let end = seek(file, SeekFrom::Hole(begin)).unwrap_or(length);
            Ok(Some((begin, end.clamp(begin + 1, length))))
        }
        Ok(_) | Err(Errno::NXIO) => Ok(None),
        // The file system knows no holes.
        Err(_) => Ok(Some((at, length))),
    }
}

fn map(file: &File, length: u64) -> io::Result<&'static [u8]> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: a new mapping at an address of the kernel's choice, which is never unmapped. The file is
    // sealed: it neither shrinks nor changes.
    unsafe {
        let start = mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0)?;
        Ok(std::slice::from_raw_parts(start.cast::<u8>(), length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_contents_and_the_holes_of_its_file() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", 200 << 20).unwrap();
        let copy = FileCopy::of(&file, "/proc/self/fd").unwrap();
        assert_eq!(copy.bytes.len(), (200 << 20) + 3);
        assert!(copy.bytes.starts_with(b"begin") && copy.bytes.ends_with(b"end"));
        assert_eq!(std::fs::metadata(&copy.path).unwrap().len(), (200 << 20) + 3);
        assert!(rustix::fs::fstat(&copy._file).unwrap().st_blocks < 2048, "the hole takes no memory");
    }

    #[test]
    fn a_sparse_file_above_the_maximum_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(FileCopy::of(&file, "/proc/self/fd").is_err());
    }
}
