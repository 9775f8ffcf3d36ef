//! The mappings of this process, from /proc/self/maps, without allocating.

use crate::sys::{self, Descriptor};

/// The open list of mappings. Iterates over their starts and ends.
pub(crate) struct Maps {
    descriptor: Descriptor,
    parser: Parser,
    bytes: [u8; 1024],
    at: usize,
    count: usize,
}

impl Maps {
    /// Opens the list.
    pub(crate) fn open() -> Option<Self> {
        let descriptor = sys::open(c"/proc/self/maps")?;
        Some(Self { descriptor, parser: Parser::default(), bytes: [0; 1024], at: 0, count: 0 })
    }

    /// Finds the mapping that contains an address by an ioctl (Linux 6.11).
    pub(crate) fn query(&self, address: usize) -> Option<(usize, usize)> {
        let mut query =
            Query { size: size_of::<Query>() as u64, address: address as u64, ..Query::default() };
        // SAFETY: the kernel reads and writes as many bytes as `size` says.
        let result = unsafe {
            sys::call3(
                libc::SYS_ioctl,
                self.descriptor.number() as usize,
                PROCMAP_QUERY,
                &raw mut query as usize,
            )
        };
        (result == 0).then_some((query.start as usize, query.end as usize))
    }

    /// Reads the next bytes; returns `false` at the end.
    fn fill(&mut self) -> bool {
        let descriptor = self.descriptor.number() as usize;
        loop {
            // SAFETY: the kernel writes at most `bytes.len()` bytes.
            let count = unsafe {
                sys::call3(libc::SYS_read, descriptor, self.bytes.as_mut_ptr() as usize, self.bytes.len())
            };
            if count != -(libc::EINTR as isize) {
                (self.at, self.count) = (0, usize::try_from(count).unwrap_or(0));
                return self.count > 0;
            }
        }
    }
}

impl Iterator for Maps {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        while self.at < self.count || self.fill() {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            if let Some(mapping) = self.parser.push(byte) {
                return Some(mapping);
            }
        }
        None
    }
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

/// An incremental parser of /proc/PID/maps. Lines are `start-end rest`, with hexadecimal numbers.
#[derive(Default)]
struct Parser {
    start: usize,
    number: usize,
    field: Field,
}

#[derive(Default)]
enum Field {
    #[default]
    Start,
    End,
    Rest,
}

impl Parser {
    /// Parses a byte. Returns a mapping once its end is parsed.
    fn push(&mut self, byte: u8) -> Option<(usize, usize)> {
        match (&self.field, byte) {
            (_, b'\n') => (self.field, self.number) = (Field::Start, 0),
            (Field::Start, b'-') => (self.field, self.start, self.number) = (Field::End, self.number, 0),
            (Field::End, b' ') => {
                self.field = Field::Rest;
                return Some((self.start, self.number));
            }
            (Field::Start | Field::End, _) => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.number = self.number.wrapping_shl(4) | digit as usize;
            }
            (Field::Rest, _) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_to_ranges() {
        let text = b"55d0c0000000-55d0c0001000 r--p 00000000 08:01 99-100 /a-b c\n7ffd00000000-7ffd00021000 rw-p 0\n";
        let mut parser = Parser::default();
        let mappings: Vec<_> = text.iter().filter_map(|byte| parser.push(*byte)).collect();
        assert_eq!(mappings, [(0x55d0_c000_0000, 0x55d0_c000_1000), (0x7ffd_0000_0000, 0x7ffd_0002_1000)]);
    }

    #[test]
    fn the_ioctl_and_the_list_agree() {
        let address = core::hint::black_box(&raw const *"text") as *const u8 as usize;
        let contains = |(start, end): &(usize, usize)| (*start..*end).contains(&address);
        let listed = Maps::open().expect("there is /proc").find(contains);
        assert!(listed.is_some());
        if let Some(queried) = Maps::open().and_then(|maps| maps.query(address)) {
            assert_eq!(Some(queried), listed);
        }
    }
}
