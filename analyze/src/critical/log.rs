//! A stack of numbers in bytes: numbers enter in one order and leave in the opposite one. A small number takes one byte.

/// A stack of numbers.
#[derive(Debug, Default)]
pub(super) struct Log(Vec<u8>);

impl Log {
    pub(super) fn push(&mut self, number: u64) {
        let start = self.0.len();
        let mut rest = number;
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            self.0.push(if rest > 0 { low | 0x80 } else { low });
            if rest == 0 {
                break;
            }
        }
        // The byte that is read first comes last.
        self.0[start..].reverse();
    }

    /// Removes the last number; 0 if there is none.
    pub(super) fn pop(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some(byte) = self.0.pop() {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                break;
            }
        }
        number
    }

    /// Adds an id. Ids are not negative.
    pub(super) fn push_id(&mut self, id: i32) {
        self.push(u64::from(id.cast_unsigned()));
    }

    /// Removes the last number, which is an id.
    pub(super) fn pop_id(&mut self) -> i32 {
        (self.pop() as u32).cast_signed()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_in_the_opposite_order() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX, 0];
        let mut log = Log::default();
        numbers.iter().for_each(|number| log.push(*number));
        log.push_id(-1);
        assert_eq!(log.pop_id(), -1);
        assert!(numbers.iter().rev().all(|number| log.pop() == *number));
        assert!(log.is_empty());
        assert_eq!(log.pop(), 0);
    }
}
