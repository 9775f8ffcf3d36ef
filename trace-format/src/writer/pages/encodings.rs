//! Parquet's encodings of values (its Encodings.md): the hybrid of runs and packed bits for dictionary
//! indices and presence bits, and DELTA_BINARY_PACKED for 64-bit integers that grow.
//!
//! In the hybrid, eight or more equal values are a run; other values are packed in groups of eight. A delta
//! page has the packed differences of neighbours.

/// Number of values of a group, and least length of a run.
const GROUP: usize = 8;

/// Returns the number of bits that hold values up to `max`.
pub(super) fn width_of(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

/// Appends values of at most `width` bits.
pub(super) fn encode(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut at, mut packed) = (0, 0);
    while let Some(group) = values.get(at..at + GROUP) {
        let value = group[0];
        if group.iter().any(|other| *other != value) {
            at += GROUP;
            continue;
        }
        pack(&values[packed..at], width, out);
        let start = at;
        at += run_length(&values[at..]);
        varint(((at - start) as u64) << 1, out);
        out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
        packed = at;
    }
    pack(&values[packed..], width, out);
}

/// Returns the number of values at the start that equal the first one.
fn run_length(values: &[u32]) -> usize {
    let Some(&value) = values.first() else { return 0 };
    let whole =
        values.chunks_exact(GROUP).take_while(|group| group.iter().all(|other| *other == value)).count();
    let rest = &values[whole * GROUP..];
    whole * GROUP + rest.iter().take_while(|other| **other == value).count()
}

/// Appends values in groups of eight; the last group is filled up with zeros.
fn pack(values: &[u32], width: u32, out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(GROUP);
    varint((groups as u64) << 1 | 1, out);
    out.reserve(groups * width as usize + size_of::<[u128; 2]>());
    let mut groups = values.chunks_exact(GROUP);
    for group in &mut groups {
        pack_group(group, width, out);
    }
    let rest = groups.remainder();
    if !rest.is_empty() {
        let mut last = [0; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        pack_group(&last, width, out);
    }
}

/// Appends eight values.
#[inline]
fn pack_group(group: &[u32], width: u32, out: &mut Vec<u8>) {
    let bytes = width as usize;
    let join64 =
        |values: &[u32]| values.iter().rev().fold(0_u64, |bits, &value| bits << width | u64::from(value));
    if bytes <= 8 {
        out.extend_from_slice(&join64(group).to_le_bytes()[..bytes]);
    } else if bytes <= 16 {
        let bits = u128::from(join64(&group[4..])) << (4 * width) | u128::from(join64(&group[..4]));
        out.extend_from_slice(&bits.to_le_bytes()[..bytes]);
    } else {
        // An even number of values of at most 32 bits is at most a word, and two such words are joined by
        // bytes of their own.
        let (mut bits, mut filled) = (0_u64, 0);
        for &value in group {
            bits |= u64::from(value) << filled;
            filled += width;
            while filled >= 8 {
                out.push(bits as u8);
                bits >>= 8;
                filled -= 8;
            }
        }
    }
}

/// Returns the bit number `bit` of up to eight words.
#[inline]
fn pack_bits(group: &[u32], bit: u32) -> u8 {
    if let Ok(group) = <&[u32; GROUP]>::try_from(group) {
        // Two words at a time: those with even indices are in the lower half.
        let pair = |at: usize| u64::from(group[at]) | u64::from(group[at + 1]) << 32;
        let bits = [0, 2, 4, 6]
            .map(|at| (pair(at) >> bit & (1 << 32 | 1)) << at)
            .iter()
            .fold(0, |all, bits| all | bits);
        return (bits | bits >> 31) as u8;
    }
    group.iter().rev().fold(0, |byte, word| byte << 1 | (word >> bit & 1) as u8)
}

/// Appends the bit number `bit` of each word, as values of one bit.
pub(super) fn encode_bits(words: &[u32], bit: u32, out: &mut Vec<u8>) {
    let packed: Vec<u8> = words.chunks(GROUP).map(|group| pack_bits(group, bit)).collect();
    // The last group may be shorter than its byte, so it is never a part of a run.
    let whole = words.len() / GROUP;
    let (mut at, mut literal) = (0, 0);
    let literals = |bytes: &[u8], out: &mut Vec<u8>| {
        if !bytes.is_empty() {
            varint((bytes.len() as u64) << 1 | 1, out);
            out.extend_from_slice(bytes);
        }
    };
    while at < whole {
        let byte = packed[at];
        if byte != 0 && byte != u8::MAX {
            at += 1;
            continue;
        }
        literals(&packed[literal..at], out);
        let run = packed[at..whole].iter().take_while(|other| **other == byte).count();
        repeat(byte & 1, run * GROUP, out);
        at += run;
        literal = at;
    }
    literals(&packed[literal..], out);
}

/// Appends a run of `count` equal bits.
pub(super) fn repeat(bit: u8, count: usize, out: &mut Vec<u8>) {
    varint((count as u64) << 1, out);
    out.push(bit);
}

/// Appends a number, seven bits per byte.
fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Number of differences of a block, which has its least difference in its header.
const BLOCK: usize = 256;
/// Number of differences of a miniblock, which has its width in the header of its block.
const MINIBLOCK: usize = 64;

/// Appends values by their differences.
pub(super) fn encode_delta(values: &[i64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint((BLOCK / MINIBLOCK) as u64, out);
    varint(values.len() as u64, out);
    let Some(&first) = values.first() else { return varint(0, out) };
    varint(zigzag(first), out);
    let mut deltas = [0_i64; BLOCK];
    let mut before = first;
    for values in values[1..].chunks(BLOCK) {
        let deltas = &mut deltas[..values.len()];
        for (delta, &value) in deltas.iter_mut().zip(values) {
            *delta = value.wrapping_sub(before);
            before = value;
        }
        encode_block(deltas, out);
    }
}

fn encode_block(deltas: &[i64], out: &mut Vec<u8>) {
    let least = deltas.iter().copied().min().unwrap_or(0);
    varint(zigzag(least), out);
    let widths = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    for (index, deltas) in deltas.chunks(MINIBLOCK).enumerate() {
        let mut offsets = [0_u64; MINIBLOCK];
        for (offset, delta) in offsets.iter_mut().zip(deltas) {
            *offset = delta.wrapping_sub(least).cast_unsigned();
        }
        let width = u64::BITS - offsets.iter().fold(0, |bits, offset| bits | offset).leading_zeros();
        out[widths + index] = width as u8;
        pack_miniblock(&offsets, width, out);
    }
}

/// Appends a miniblock of values of at most `width` bits.
fn pack_miniblock(values: &[u64; MINIBLOCK], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut bits, mut filled) = (0_u64, 0);
    for &value in values {
        bits |= value << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&bits.to_le_bytes());
            filled -= u64::BITS;
            // The part of the value that did not fit.
            bits = if filled == 0 { 0 } else { value >> (width - filled) };
        }
    }
    // A miniblock is a multiple of 64 values, so nothing is left.
    debug_assert_eq!(filled, 0);
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes `count` values, as slowly and simply as the specification says it.
    fn decode(mut bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let mut header = 0_u64;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                bytes = &bytes[1..];
                header |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            if header & 1 == 0 {
                let length = width.div_ceil(8) as usize;
                let mut value = [0; 4];
                value[..length].copy_from_slice(&bytes[..length]);
                bytes = &bytes[length..];
                values.extend(std::iter::repeat_n(u32::from_le_bytes(value), (header >> 1) as usize));
            } else {
                let groups = (header >> 1) as usize;
                let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
                for value in 0..groups * GROUP {
                    let first = value * width as usize;
                    values.push((0..width as usize).map(|at| bit(first + at) << at).sum());
                }
                bytes = &bytes[groups * width as usize..];
            }
        }
        assert!(bytes.is_empty() && values.len() < count + GROUP, "{} of {count}", values.len());
        assert!(values[count..].iter().all(|value| *value == 0));
        values.truncate(count);
        values
    }

    #[test]
    fn equal_values_are_one_run_and_other_values_packed() {
        let mut out = Vec::new();
        encode(&[3; 1000], 2, &mut out);
        assert_eq!(out, [0xd0, 0x0f, 3]);
        out.clear();
        encode(&[0, 1, 2, 3, 4, 5, 6, 7], 3, &mut out);
        assert_eq!(out, [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        out.clear();
        encode(&[0; 20], 0, &mut out);
        assert_eq!(out, [40]);
        assert_eq!([0, 1, 2, 255, 256, u32::MAX].map(width_of), [0, 1, 2, 8, 9, 32]);
    }

    proptest! {
        #[test]
        fn values_of_any_width_are_decoded_again(
            width in 0..=32_u32,
            runs in prop::collection::vec((any::<u32>(), 1..30_usize), 0..40),
        ) {
            let mask = ((1_u64 << width) - 1) as u32;
            let values: Vec<u32> =
                runs.iter().flat_map(|&(value, count)| std::iter::repeat_n(value & mask, count % 11 + count / 11)).collect();
            let mut out = Vec::new();
            encode(&values, width, &mut out);
            prop_assert_eq!(decode(&out, width, values.len()), values);
        }

        #[test]
        fn bits_are_decoded_again(
            bit in 0..32_u32,
            runs in prop::collection::vec((any::<u32>(), 1..40_usize), 0..40),
        ) {
            let words: Vec<u32> = runs.iter().flat_map(|&(word, count)| std::iter::repeat_n(word, count)).collect();
            let mut out = Vec::new();
            encode_bits(&words, bit, &mut out);
            let bits: Vec<u32> = words.iter().map(|word| word >> bit & 1).collect();
            prop_assert_eq!(decode(&out, 1, bits.len()), bits);
        }
    }
}
