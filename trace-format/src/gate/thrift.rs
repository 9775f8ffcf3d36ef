//! Thrift's compact protocol, as far as Parquet's headers need it: walks over a struct without building anything, so that lengths are checked before
//! the Parquet library reserves memory for them.
//!
//! For example, a list that claims 2^31 elements in a footer of 4 kB is refused, because every element takes a byte.

/// Maximum depth of structs and lists. Parquet's footer has eight.
const MAX_DEPTH: usize = 16;

/// A number in a struct: its place and its value. The place is the ids of the fields from the outermost struct inwards, without lists.
pub(super) enum Found {
    Number(i64),
    /// The number of elements of a list.
    Elements(u64),
}

/// A reader of bytes.
pub(super) struct Thrift<'a, F> {
    bytes: &'a [u8],
    path: Vec<i16>,
    each: F,
}

/// Calls `each` with the place and the value of every number of a struct. Returns the length of the struct; `None` if the bytes end before it, or
/// are not one.
pub(super) fn walk(bytes: &[u8], each: impl FnMut(&[i16], Found)) -> Option<usize> {
    let mut thrift = Thrift { bytes, path: Vec::with_capacity(MAX_DEPTH), each };
    thrift.skip_struct(0)?;
    Some(bytes.len() - thrift.bytes.len())
}

impl<F: FnMut(&[i16], Found)> Thrift<'_, F> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn number(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed()))
    }

    fn skip_struct(&mut self, depth: usize) -> Option<()> {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.number()?).ok()?,
                delta => id.checked_add(delta.into())?,
            };
            self.path.push(id);
            self.skip_value(head & 0xf, false, depth)?;
            self.path.pop();
        }
    }

    fn skip_value(&mut self, kind: u8, is_element: bool, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            // Of a field, the kind is the value. Parquet's headers have no lists of them, and the library skips no byte for each.
            1 | 2 => (!is_element).then_some(()),
            3 => self.skip(1),
            4..=6 => {
                let number = self.number()?;
                (self.each)(&self.path, Found::Number(number));
                Some(())
            }
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => self.skip_list(depth),
            12 => self.skip_struct(depth + 1),
            13 => self.skip(16),
            // Parquet has no maps.
            _ => None,
        }
    }

    fn skip_list(&mut self, depth: usize) -> Option<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        // The library reserves memory for all elements, and a struct has a field and an end.
        let least = if head & 0xf == 12 { 3 } else { 1 };
        if count.checked_mul(least)? > self.bytes.len() as u64 {
            return None;
        }
        (self.each)(&self.path, Found::Elements(count));
        (0..count).try_for_each(|_| self.skip_value(head & 0xf, true, depth + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Option<Vec<(Vec<i16>, i64)>> {
        let mut all = Vec::new();
        let length = walk(bytes, |path, found| match found {
            Found::Number(number) => all.push((path.to_vec(), number)),
            Found::Elements(count) => all.push((path.to_vec(), -(count as i64))),
        })?;
        assert!(length <= bytes.len());
        Some(all)
    }

    #[test]
    fn lists_of_truth_values_are_refused() {
        let of = |kind: u8| [0x19, 0x20 | kind, 0x01, 0x01, 0x00];
        assert!(numbers(&of(3)).is_some());
        assert!(numbers(&of(1)).is_none() && numbers(&of(2)).is_none());
    }

    #[test]
    fn numbers_are_found_by_the_ids_of_their_fields() {
        // Field 1: 150; field 3: a struct with field 2: -1; field 4: a list of two numbers.
        let bytes = [0x15, 0xac, 0x02, 0x2c, 0x25, 0x01, 0x00, 0x19, 0x25, 0x02, 0x04, 0x00];
        let expected = [(vec![1], 150), (vec![3, 2], -1), (vec![4], -2), (vec![4], 1), (vec![4], 2)].to_vec();
        assert_eq!(numbers(&bytes), Some(expected));
        assert!((0..bytes.len()).all(|length| numbers(&bytes[..length]).is_none()));
    }

    #[test]
    fn a_list_that_is_longer_than_the_bytes_and_a_deep_struct_are_refused() {
        assert_eq!(numbers(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00, 0x00]), None);
        assert_eq!(numbers(&[0x1c; 1 << 20]), None);
        assert_eq!(numbers(&[0x19; 1 << 20]), None);
    }
}
