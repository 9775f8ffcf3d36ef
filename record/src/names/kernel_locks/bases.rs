//! Finds the direct mapping of physical memory and the array of page descriptors, which are randomised at
//! boot.
//!
//! Their addresses are in exported variables, but kallsyms need not list these. Otherwise they are derived
//! from a page of klock's own: `/proc/self/pagemap` gives its number, and the page cache its descriptor. Both
//! results are verified by finding the running task in the cache `task_struct`.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::fs::FileExt as _,
    },
    ptr::{NonNull, null_mut},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
};

use super::slab::{Bases, PAGE_SHIFT, Slabs};
use crate::{kernel::peek::Memory, setup::btf::TypeInfo};

/// Alignment of both regions (`arch/x86/mm/kaslr.c`).
const STEP: u64 = 1 << 30;
const MAX_STEPS: u64 = 16 << 10;
/// Lowest address of the direct mapping.
const MIN_ADDRESS: u64 = 0xff00_0000_0000_0000;
/// Number of times that klock's page may be moved. In 1 ms, that happened to 7 of 44,000 pages of a machine
/// that made room all the time.
const ATTEMPTS: usize = 8;

/// Finds the two regions. `variable` returns the address of a variable, if kallsyms lists it.
pub(super) fn find(
    memory: &mut impl Memory,
    types: &TypeInfo,
    slabs: &mut Slabs,
    page_bytes: u64,
    variable: impl Fn(&str) -> Option<u64>,
) -> Option<Bases> {
    let task = memory.task(None)?;
    let listed = read(memory, variable);
    if let Some(bases) = listed
        && finds_task(memory, slabs, bases, task)
    {
        return Some(bases);
    }
    let own = OwnPage::new().ok()?;
    for _ in 0..ATTEMPTS {
        let number = own.page_number();
        let found = number.and_then(|number| {
            let description = page_of_file(memory, types, task, own.fd())?;
            let pages = description.checked_sub(number.checked_mul(page_bytes)?)?;
            with_own_page(memory, slabs, task, pages, (number, &own.secret))
        });
        // The kernel may have moved the page meanwhile, to make room for large ones.
        if found.is_some() || number.is_some() && own.page_number() == number {
            return found;
        }
    }
    None
}

/// Finds the direct mapping, given the array of page descriptors and the number and the contents of klock's
/// own page.
fn with_own_page(
    memory: &mut impl Memory,
    slabs: &mut Slabs,
    task: u64,
    pages: u64,
    (number, secret): (u64, &[u8; SECRET_BYTES]),
) -> Option<Bases> {
    if !pages.is_multiple_of(STEP) {
        return None;
    }
    // The direct mapping starts before the task.
    let nearest = task & !(STEP - 1);
    let candidates = (0..MAX_STEPS).map_while(|step| nearest.checked_sub(step * STEP));
    for begin in candidates.take_while(|&begin| begin >= MIN_ADDRESS) {
        let bases = Bases { memory: begin, pages };
        if finds_task(memory, slabs, bases, task) {
            // Reads klock's own page through the direct mapping, to verify it.
            let mut read = [0; SECRET_BYTES];
            memory.read(begin + (number << PAGE_SHIFT), &mut read)?;
            return (read == *secret).then_some(bases);
        }
    }
    None
}

/// Reads the kernel's variables.
fn read(memory: &mut impl Memory, variable: impl Fn(&str) -> Option<u64>) -> Option<Bases> {
    let begin = memory.word(variable("page_offset_base")?)?;
    let pages = memory.word(variable("vmemmap_base")?)?;
    Some(Bases { memory: begin, pages })
}

/// Returns whether the running task is found in its cache.
fn finds_task(memory: &mut impl Memory, slabs: &mut Slabs, bases: Bases, task: u64) -> bool {
    slabs.object(memory, bases, task).is_some_and(|object| object.cache.name == "task_struct")
}

/// Returns the descriptor of the only page of a file that the task has open.
fn page_of_file(memory: &mut impl Memory, types: &TypeInfo, task: u64, fd: RawFd) -> Option<u64> {
    let files = memory.word(task + types.offset("task_struct", "files")?)?;
    let table = memory.word(files + types.offset("files_struct", "fdt")?)?;
    let open = memory.word(table + types.offset("fdtable", "fd")?)?;
    let file = memory.word(open + 8 * u64::try_from(fd).ok()?)?;
    let mapping = memory.word(file + types.offset("file", "f_mapping")?)?;
    let pages = types.offset("address_space", "i_pages")? + types.offset("xarray", "xa_head")?;
    // For a file of one page, this is the page; otherwise a tree, marked by the low bits.
    memory.word(mapping + pages).filter(|&page| page != 0 && page & 3 == 0)
}

const SECRET_BYTES: usize = 32;

/// A page of memory with random contents: a file without a name, mapped here.
struct OwnPage {
    file: File,
    page: NonNull<u8>,
    secret: [u8; SECRET_BYTES],
}

const BYTES: usize = 1 << PAGE_SHIFT;

impl OwnPage {
    fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("klock-page", MemfdFlags::CLOEXEC)?);
        file.set_len(BYTES as u64)?;
        let mut secret = [0; SECRET_BYTES];
        File::open("/dev/urandom")?.read_exact_at(&mut secret, 0)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address.
        let page = unsafe { mmap(null_mut(), BYTES, access, MapFlags::SHARED, &file, 0)? };
        let page = NonNull::new(page.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let own = Self { file, page, secret };
        // SAFETY: the mapping is ours, of this length, and the secret fits in. A page of a huge page would
        // have its descriptor elsewhere; the advice fails on kernels without huge pages.
        unsafe {
            let _ = madvise(page.as_ptr().cast(), BYTES, Advice::LinuxNoHugepage);
            page.copy_from_nonoverlapping(NonNull::from(&own.secret).cast(), SECRET_BYTES);
        }
        Ok(own)
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the number of the physical page; `None` if the kernel hides it (without CAP_SYS_ADMIN).
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

impl Drop for OwnPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more. It is valid, so this cannot fail.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), BYTES) };
    }
}
