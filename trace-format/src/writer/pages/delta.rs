//! The DELTA_BINARY_PACKED encoding of 64-bit integers: times in, the packed differences of neighbours out. See "Delta Encoding" in the
//! Parquet format's Encodings.md.

use super::hybrid::varint;

/// Number of differences of a block, which has its least difference in its header.
const BLOCK: usize = 256;
/// Number of differences of a miniblock, which has its width in the header of its block.
const MINIBLOCK: usize = 64;

/// Appends values.
pub(super) fn encode(values: &[i64], out: &mut Vec<u8>) {
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
        pack(&offsets, width, out);
    }
}

/// Appends a miniblock of values of at most `width` bits.
fn pack(values: &[u64; MINIBLOCK], width: u32, out: &mut Vec<u8>) {
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
