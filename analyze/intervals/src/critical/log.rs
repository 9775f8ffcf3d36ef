//! A stack of numbers in bytes, which is read backward from any place between two numbers. A small number
//! takes one byte.

/// A stack of numbers.
#[derive(Debug, Default)]
pub(super) struct Log(Vec<u8>);

impl Log {
    /// Returns the place behind the last number.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn push(&mut self, number: u64) {
        match number {
            0..0x80 => self.0.push(number as u8),
            // The byte that is read first comes last.
            0x80..0x4000 => self.0.extend_from_slice(&[(number >> 7) as u8, number as u8 | 0x80]),
            _ => self.push_large(number),
        }
    }

    fn push_large(&mut self, number: u64) {
        let groups = (u64::BITS - number.leading_zeros()).div_ceil(7);
        let byte = |group: u32| {
            let is_last = group + 1 == groups;
            (number >> (7 * group)) as u8 & 0x7f | if is_last { 0 } else { 0x80 }
        };
        self.0.extend((0..groups).rev().map(byte));
    }

    /// Adds an id.
    pub(super) fn push_id(&mut self, id: i32) {
        self.push(u64::from(id.cast_unsigned()));
    }

    /// Adds a number that may be negative.
    pub(super) fn push_signed(&mut self, number: i64) {
        self.push((number << 1 ^ number >> 63).cast_unsigned());
    }

    /// Returns a reader of the numbers before a place.
    pub(super) fn before(&self, place: usize) -> Reader<'_> {
        Reader(self.0.get(..place).unwrap_or_default())
    }
}

/// Reads the numbers of a log backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Returns the place before the last number that was read.
    pub(super) fn place(self) -> usize {
        self.0.len()
    }

    /// Returns the byte that is read next.
    pub(super) fn last(self) -> Option<u8> {
        self.0.last().copied()
    }

    /// Returns the number before the last one; 0 if there is none.
    #[inline]
    pub(super) fn pop(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some((byte, rest)) = self.0.split_last() {
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                break;
            }
        }
        number
    }

    /// The same for an id.
    pub(super) fn pop_id(&mut self) -> i32 {
        (self.pop() as u32).cast_signed()
    }

    /// The same for a number that may be negative.
    pub(super) fn pop_signed(&mut self) -> i64 {
        let number = self.pop();
        (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_backward_from_any_place() {
        let numbers = [0, 1, 127, 128, 300, (1 << 14) - 1, 1 << 14, 1 << 35, u64::MAX, 0];
        let mut log = Log::default();
        let mut places = Vec::new();
        for number in numbers {
            log.push(number);
            places.push(log.end());
        }
        for end in 0..numbers.len() {
            let mut reader = log.before(places[end]);
            assert!(numbers[..=end].iter().rev().all(|number| reader.pop() == *number));
            assert_eq!((reader.place(), reader.pop()), (0, 0));
        }
        assert_eq!(places[..3], [1, 2, 3], "small numbers take one byte");
    }

    #[test]
    fn ids_and_signed_numbers_keep_their_sign() {
        let signed = [0, -1, 1, 63, -64, i64::MAX, i64::MIN];
        let mut log = Log::default();
        signed.iter().for_each(|number| log.push_signed(*number));
        [-1, 0, i32::MAX, i32::MIN].iter().for_each(|id| log.push_id(*id));
        let mut reader = log.before(log.end());
        assert!([i32::MIN, i32::MAX, 0, -1].iter().all(|id| reader.pop_id() == *id));
        assert!(signed.iter().rev().all(|number| reader.pop_signed() == *number));
    }
}
