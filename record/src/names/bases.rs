//! Where the running kernel keeps its pages and their descriptions. Both are moved at boot; the variables that say where to
//! are exported, but a kernel need not list them in kallsyms. So there are two ways: the variables, or a page of
//! our own, of which the kernel's page tables tell the number and the page cache the description. Either answer has
//! to explain the running task, which is an object of the cache `task_struct`.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::fs::FileExt as _,
    },
    ptr::NonNull,
};

use super::{
    slab::{Bases, PAGE_SHIFT, Slabs},
    types::Types,
};
use crate::peek::Memory;

/// Both regions begin at a multiple of this, wherever they are moved to (`arch/x86/mm/kaslr.c`).
const STEP: u64 = 1 << 30;
/// Machines with more memory than this many steps are not searched to their end.
const MOST_STEPS: u64 = 16 << 10;
/// Where a page that lies behind the begin of the memory by less than a task's, would be.
const LEAST_ADDRESS: u64 = 0xff00_0000_0000_0000;

/// Finds them; `variable` gives the address of a variable by its name, where kallsyms has it.
pub(super) fn find(
    memory: &mut impl Memory,
    types: &Types,
    slabs: &mut Slabs,
    page_bytes: u64,
    variable: impl Fn(&str) -> Option<u64>,
) -> Option<Bases> {
    let task = memory.task(None)?;
    let listed = read(memory, variable);
    if let Some(bases) = listed
        && explains(memory, slabs, bases, task)
    {
        return Some(bases);
    }
    let witness = Witness::new().ok()?;
    let number = witness.page_number()?;
    let description = page_of_file(memory, types, task, witness.fd())?;
    let pages = description.checked_sub(number.checked_mul(page_bytes)?)?;
    if pages % STEP != 0 {
        return None;
    }
    // The task lies behind the begin of the memory by less than all of the memory.
    let nearest = task & !(STEP - 1);
    let candidates = (0..MOST_STEPS).map_while(|step| nearest.checked_sub(step * STEP));
    for begin in candidates.take_while(|&begin| begin >= LEAST_ADDRESS) {
        let bases = Bases { memory: begin, pages };
        if explains(memory, slabs, bases, task) {
            // Only now something is read through it, and it has to be what stands in our page.
            let mut read = [0; SECRET_BYTES];
            memory.read(begin + (number << PAGE_SHIFT), &mut read)?;
            return (read == witness.secret).then_some(bases);
        }
    }
    None
}

/// By the kernel's own variables.
fn read(memory: &mut impl Memory, variable: impl Fn(&str) -> Option<u64>) -> Option<Bases> {
    let begin = memory.word(variable("page_offset_base")?)?;
    let pages = memory.word(variable("vmemmap_base")?)?;
    Some(Bases { memory: begin, pages })
}

/// Whether the running task is found to be one.
fn explains(memory: &mut impl Memory, slabs: &mut Slabs, bases: Bases, task: u64) -> bool {
    slabs.object(memory, bases, task).is_some_and(|object| object.cache.name == "task_struct")
}

/// The description of the only page of a file that the task has open.
fn page_of_file(memory: &mut impl Memory, types: &Types, task: u64, fd: RawFd) -> Option<u64> {
    let files = memory.word(task + types.offset("task_struct", "files")?)?;
    let table = memory.word(files + types.offset("files_struct", "fdt")?)?;
    let open = memory.word(table + types.offset("fdtable", "fd")?)?;
    let file = memory.word(open + 8 * u64::try_from(fd).ok()?)?;
    let mapping = memory.word(file + types.offset("file", "f_mapping")?)?;
    let pages = types.offset("address_space", "i_pages")? + types.offset("xarray", "xa_head")?;
    // A file of one page has it where a larger one has a tree; the low bits tell the one from the other.
    memory.word(mapping + pages).filter(|&page| page != 0 && page & 3 == 0)
}

const SECRET_BYTES: usize = 32;

/// A page in memory that nobody else has: a file without a name, mapped here.
struct Witness {
    file: File,
    page: NonNull<u8>,
    secret: [u8; SECRET_BYTES],
}

const BYTES: usize = 1 << PAGE_SHIFT;

impl Witness {
    fn new() -> io::Result<Self> {
        // SAFETY: the name is a string that ends in 0.
        let fd = unsafe { libc::memfd_create(c"klock-witness".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call just gave it to us.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(BYTES as u64)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the kernel chooses the place; nothing of ours is there.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, flags, file.as_raw_fd(), 0) };
        let page = match NonNull::new(page.cast::<u8>()) {
            Some(page) if page.as_ptr().cast() != libc::MAP_FAILED => page,
            _ => return Err(io::Error::last_os_error()),
        };
        let mut witness = Self { file, page, secret: [0; SECRET_BYTES] };
        File::open("/dev/urandom")?.read_exact_at(&mut witness.secret, 0)?;
        // SAFETY: the mapping is ours, of this length, and the secret fits in. A page of a huge one would have its
        // description elsewhere; the advice may be unknown to the kernel, which then has no such pages.
        unsafe {
            libc::madvise(page.as_ptr().cast(), BYTES, libc::MADV_NOHUGEPAGE);
            page.copy_from_nonoverlapping(NonNull::from(&witness.secret).cast(), SECRET_BYTES);
        }
        Ok(witness)
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The number of the physical page; `None` where the kernel keeps it to itself (without CAP_SYS_ADMIN).
    fn page_number(&self) -> Option<u64> {
        const PRESENT: u64 = 1 << 63;
        const NUMBER: u64 = (1 << 55) - 1;
        let mut entry = [0; 8];
        let at = (self.page.as_ptr() as u64 >> PAGE_SHIFT) * 8;
        File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut entry, at).ok()?;
        let entry = u64::from_ne_bytes(entry);
        (entry & PRESENT != 0).then_some(entry & NUMBER).filter(|&number| number != 0)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), BYTES) };
    }
}
