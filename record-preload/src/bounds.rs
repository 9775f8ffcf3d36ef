//! Where a thread's stack is: exact bounds of mapped memory, so that a walk can't leave it. Asks the kernel once for a thread,
//! without allocating; `None` where it can't be told, and then stacks are call sites only.

use crate::sys;

/// Where a stack may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Its lowest byte.
    pub(crate) low: usize,
    /// Its end.
    pub(crate) high: usize,
}

/// A stack is not followed further down than this from its top, whatever its limit is.
const MOST_BYTES: usize = 64 << 20;
/// The limit to assume where there is none.
const USUAL_BYTES: usize = 8 << 20;

/// The stack of this thread, which is `main` if its process has its name. `stack_pointer` is somewhere in the stack that it is on.
pub(crate) fn of_this_thread(main: bool, stack_pointer: usize) -> Option<Bounds> {
    // The C library keeps what it knows of a thread at the end of the thread's stack, as long as there is the thread. What the
    // kernel says about the end would not do: a mapping that lies beside is one with the stack to it, and may go any time.
    let pointer = thread_pointer();
    let thread = mapping(pointer).map(|(start, _)| Bounds { low: limited(start, pointer), high: pointer });
    let is_on = |bounds: &Bounds| (bounds.low..bounds.high).contains(&stack_pointer);
    if !main || thread.as_ref().is_some_and(is_on) {
        return thread;
    }
    // The first thread's stack is the kernel's, and grows: what is below its begin now is part of it later.
    mapping(begin_of_first()?).map(|(_, end)| Bounds { low: limited(0, end), high: end })
}

fn limited(start: usize, end: usize) -> usize {
    start.max(end.saturating_sub(limit()))
}

/// An address in the first thread's stack: where it began, by the loader's own account.
fn begin_of_first() -> Option<usize> {
    // SAFETY: a string that ends in zero.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) }.cast::<usize>();
    // SAFETY: the loader's variable.
    (!place.is_null()).then(|| unsafe { *place })
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word behind the thread pointer is the thread pointer, by the ABI.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// How large the process lets stacks become.
fn limit() -> usize {
    let mut limits = [0_u64; 2];
    // SAFETY: the kernel writes two words.
    let answer = unsafe {
        let place = &raw mut limits as usize;
        sys::call(libc::SYS_prlimit64, [0, libc::RLIMIT_STACK as usize, 0, place, 0, 0])
    };
    if answer < 0 || limits[0] == u64::MAX { USUAL_BYTES } else { (limits[0] as usize).min(MOST_BYTES) }
}

/// The mapping that holds an address: its begin and its end.
fn mapping(address: usize) -> Option<(usize, usize)> {
    let path = c"/proc/self/maps";
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a string that ends in zero.
    let opened = unsafe {
        sys::call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0])
    };
    let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
    let found = asked(descriptor, address).or_else(|| read(descriptor, address));
    sys::close(descriptor);
    found
}

/// `struct procmap_query` of Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rest: [u64; 8],
}

const PROCMAP_QUERY: usize = 0xc000_0000 | size_of::<Query>() << 16 | 0x6611;

/// By one question, which the kernel answers since Linux 6.11.
fn asked(descriptor: i32, address: usize) -> Option<(usize, usize)> {
    let mut query = Query { size: size_of::<Query>() as u64, address: address as u64, ..Query::default() };
    // SAFETY: the kernel reads and writes as many bytes as the structure says that it has.
    let answer =
        unsafe { sys::call3(libc::SYS_ioctl, descriptor as usize, PROCMAP_QUERY, &raw mut query as usize) };
    (answer == 0).then_some((query.start as usize, query.end as usize))
}

/// By reading the list of all mappings.
fn read(descriptor: i32, address: usize) -> Option<(usize, usize)> {
    let mut search = Search::new(address);
    let mut bytes = [0_u8; 1024];
    loop {
        // SAFETY: the kernel writes no more than there is room.
        let count = unsafe {
            sys::call3(libc::SYS_read, descriptor as usize, bytes.as_mut_ptr() as usize, bytes.len())
        };
        if count == -(libc::EINTR as isize) {
            continue;
        }
        let text = bytes.get(..usize::try_from(count).ok().filter(|count| *count > 0)?)?;
        if let Some(found) = text.iter().find_map(|byte| search.take(*byte)) {
            return Some(found);
        }
    }
}

/// Finds a mapping in the text of /proc/PID/maps, byte by byte: `start-end rest` in lines, the numbers in hexadecimal.
struct Search {
    address: usize,
    start: usize,
    number: usize,
    part: Part,
}

enum Part {
    Start,
    End,
    Rest,
}

impl Search {
    fn new(address: usize) -> Self {
        Self { address, start: 0, number: 0, part: Part::Start }
    }

    fn take(&mut self, byte: u8) -> Option<(usize, usize)> {
        match (&self.part, byte) {
            (_, b'\n') => (self.part, self.number) = (Part::Start, 0),
            (Part::Start, b'-') => (self.part, self.start, self.number) = (Part::End, self.number, 0),
            (Part::End, b' ') => {
                self.part = Part::Rest;
                if (self.start..self.number).contains(&self.address) {
                    return Some((self.start, self.number));
                }
            }
            (Part::Start | Part::End, _) => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.number = self.number.wrapping_shl(4) | digit as usize;
            }
            (Part::Rest, _) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd, thread};

    use super::*;

    fn here() -> usize {
        let local = 0_u8;
        core::hint::black_box(&raw const local) as usize
    }

    #[test]
    fn the_list_of_mappings_is_searched_by_its_numbers() {
        let text = b"55d0c0000000-55d0c0001000 r--p 00000000 08:01 99-100 /a-b c\n7ffd00000000-7ffd00021000 rw-p 0\n";
        let find = |address| {
            let mut search = Search::new(address);
            text.iter().find_map(|byte| search.take(*byte))
        };
        assert_eq!(find(0x55d0_c000_0fff), Some((0x55d0_c000_0000, 0x55d0_c000_1000)));
        assert_eq!(find(0x7ffd_0000_0000), Some((0x7ffd_0000_0000, 0x7ffd_0002_1000)));
        assert_eq!(find(0x55d0_c000_1000), None);
    }

    #[test]
    fn the_question_and_the_list_have_the_same_answer() {
        let maps = File::open("/proc/self/maps").expect("there is /proc");
        let listed = read(maps.as_raw_fd(), here());
        assert!(listed.is_some());
        if let Some(asked) = asked(maps.as_raw_fd(), here()) {
            assert_eq!(Some(asked), listed);
        }
    }

    #[test]
    fn a_thread_is_inside_of_its_stack_and_not_of_another() {
        let bounds = thread::spawn(|| {
            let bounds = of_this_thread(false, here()).expect("a stack");
            assert!((bounds.low..bounds.high).contains(&here()));
            bounds
        });
        let bounds = bounds.join().expect("it ends");
        assert!(!(bounds.low..bounds.high).contains(&here()));
    }
}
