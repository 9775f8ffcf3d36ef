//! Thrift's compact protocol, as far as Parquet's headers need it: walks over a struct without building
//! anything, so that lengths are checked before the Parquet library reserves memory for them.
//!
//! For example, a list that claims 2^31 elements in a footer of 4 kB is refused, because every element takes
//! a byte.
//!
//! The library reads a field as its id says, whatever kind the bytes give. So each field that it knows must
//! be of its kind: otherwise the library would read other lengths than those that were checked here.

/// Maximum depth of structs and lists. Parquet's footer has eight.
const MAX_DEPTH: usize = 16;

/// Kinds of values. A truth value has the kind 1 or 2. Parquet has no lists of truth values.
const BOOL: u8 = 1;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const STRUCT: u8 = 12;
/// A field that is not read: encryption.
const NEVER: u8 = 0xff;

/// A list, by the kind of its elements.
const fn list(of: u8) -> u8 {
    LIST << 4 | of
}
const LIST: u8 = 9;

/// The structs of a header, by their place, and the kinds of their fields, by id from 1 on (`parquet.thrift`,
/// 2.11).
pub(super) type Shapes = &'static [(&'static [i16], &'static [u8])];

const STATISTICS: &[u8] = &[BINARY, BINARY, I64, I64, BINARY, BINARY, BOOL, BOOL];
const TIME: &[u8] = &[BOOL, STRUCT];

/// `FileMetaData`.
pub(super) const FOOTER: Shapes = &[
    (&[], &[I32, list(STRUCT), I64, list(STRUCT), list(STRUCT), BINARY, list(STRUCT), NEVER, NEVER]),
    // SchemaElement and its LogicalType.
    (&[2], &[I32, I32, I32, BINARY, I32, I32, I32, I32, I32, STRUCT]),
    (&[2, 10], &[STRUCT; 18]),
    (&[2, 10, 5], &[I32, I32]),
    (&[2, 10, 7], TIME),
    (&[2, 10, 7, 2], &[STRUCT; 3]),
    (&[2, 10, 8], TIME),
    (&[2, 10, 8, 2], &[STRUCT; 3]),
    (&[2, 10, 10], &[BYTE, BOOL]),
    (&[2, 10, 16], &[BYTE]),
    (&[2, 10, 17], &[BINARY]),
    (&[2, 10, 18], &[BINARY, I32]),
    // RowGroup, ColumnChunk, SortingColumn.
    (&[4], &[list(STRUCT), I64, I64, list(STRUCT), I64, I64, I16]),
    (&[4, 1], &[BINARY, I64, STRUCT, I64, I32, I64, I32, NEVER, NEVER]),
    (&[4, 4], &[I32, BOOL, BOOL]),
    // ColumnMetaData.
    (
        &[4, 1, 3],
        &[
            I32,
            list(I32),
            list(BINARY),
            I32,
            I64,
            I64,
            I64,
            list(STRUCT),
            I64,
            I64,
            I64,
            STRUCT,
            list(STRUCT),
            I64,
            I32,
            STRUCT,
            STRUCT,
        ],
    ),
    (&[4, 1, 3, 8], &[BINARY, BINARY]),
    (&[4, 1, 3, 12], STATISTICS),
    (&[4, 1, 3, 13], &[I32, I32, I32]),
    (&[4, 1, 3, 16], &[I64, list(I64), list(I64)]),
    (&[4, 1, 3, 17], &[STRUCT, list(I32)]),
    (&[4, 1, 3, 17, 1], &[DOUBLE; 8]),
    // KeyValue, ColumnOrder.
    (&[5], &[BINARY, BINARY]),
    (&[7], &[STRUCT]),
];

/// `PageHeader`.
pub(super) const PAGE: Shapes = &[
    (&[], &[I32, I32, I32, I32, STRUCT, STRUCT, STRUCT, STRUCT]),
    (&[5], &[I32, I32, I32, I32, STRUCT]),
    (&[5, 5], STATISTICS),
    (&[7], &[I32, I32, BOOL]),
    (&[8], &[I32, I32, I32, I32, I32, I32, BOOL, STRUCT]),
    (&[8, 8], STATISTICS),
];

/// A number in a struct: its place and its value. The place is the ids of the fields from the outermost
/// struct inwards, without lists.
pub(super) enum Found {
    Number(i64),
    /// The number of elements of a list.
    Elements(u64),
}

/// A reader of bytes.
pub(super) struct Thrift<'a, F> {
    bytes: &'a [u8],
    shapes: Shapes,
    path: Vec<i16>,
    each: F,
}

/// Calls `each` with the place and the value of every number of a struct. Returns the length of the struct;
/// `None` if the bytes end before it, or are not one of these shapes.
pub(super) fn walk(bytes: &[u8], shapes: Shapes, each: impl FnMut(&[i16], Found)) -> Option<usize> {
    let mut thrift = Thrift { bytes, shapes, path: Vec::with_capacity(MAX_DEPTH), each };
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
        let fields =
            self.shapes.iter().find(|(path, _)| *path == self.path).map_or(&[][..], |(_, fields)| *fields);
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
            let known = usize::try_from(id).ok().and_then(|id| fields.get(id.checked_sub(1)?)).copied();
            self.path.push(id);
            self.skip_value(head & 0xf, known, depth)?;
            self.path.pop();
        }
    }

    /// Skips a value of this kind. `known` is the kind that it must have, if the library knows it.
    fn skip_value(&mut self, kind: u8, known: Option<u8>, depth: usize) -> Option<()> {
        let fits = |known: u8| match known {
            BOOL => matches!(kind, 1 | 2),
            NEVER => false,
            known if known > 0xf => kind == LIST,
            known => kind == known,
        };
        if depth > MAX_DEPTH || !known.is_none_or(fits) {
            return None;
        }
        match kind {
            // The kind is the value.
            1 | 2 => Some(()),
            BYTE => self.skip(1),
            I16 | I32 | I64 => {
                let number = self.number()?;
                (self.each)(&self.path, Found::Number(number));
                Some(())
            }
            DOUBLE => self.skip(8),
            BINARY => {
                let length = self.varint()?;
                self.skip(length)
            }
            LIST | 10 => self.skip_list(known.map(|known| known & 0xf), depth),
            STRUCT => self.skip_struct(depth + 1),
            13 => self.skip(16),
            // Parquet has no maps.
            _ => None,
        }
    }

    fn skip_list(&mut self, of: Option<u8>, depth: usize) -> Option<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        // The library reserves memory for all elements, and a struct has a field and an end.
        let least = if head & 0xf == STRUCT { 3 } else { 1 };
        if count.checked_mul(least)? > self.bytes.len() as u64 {
            return None;
        }
        (self.each)(&self.path, Found::Elements(count));
        // An empty list may have any kind.
        // The library skips no byte for a truth value in a list.
        if count > 0 && matches!(head & 0xf, 1 | 2) {
            return None;
        }
        (0..count).try_for_each(|_| self.skip_value(head & 0xf, of, depth + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: Shapes = &[(&[7], &[I32, list(I64)])];

    fn numbers(bytes: &[u8]) -> Option<Vec<(Vec<i16>, i64)>> {
        let mut all = Vec::new();
        let length = walk(bytes, SHAPES, |path, found| match found {
            Found::Number(number) => all.push((path.to_vec(), number)),
            Found::Elements(count) => all.push((path.to_vec(), -(count as i64))),
        })?;
        assert!(length <= bytes.len());
        Some(all)
    }

    #[test]
    fn a_field_of_another_kind_than_the_library_reads_is_refused() {
        // Field 7: a struct with field 1 and field 2.
        let of = |first: &[u8], second: &[u8]| {
            let bytes = [&[0x7c], first, second, &[0, 0]].concat();
            numbers(&bytes).is_some()
        };
        let (number, longs) = ([0x15, 0x02], [0x19, 0x16, 0x02]);
        assert!(of(&number, &longs) && of(&[], &[0x29, 0x06]));
        assert!(!of(&[0x16, 0x02], &longs), "a long in place of an int");
        assert!(!of(&[0x18, 0x01, 0x15], &longs), "bytes in place of an int");
        assert!(!of(&number, &[0x19, 0x15, 0x02]), "a list of ints in place of longs");
        assert!(!of(&number, &[0x1a, 0x16, 0x02]), "a set in place of a list");
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
