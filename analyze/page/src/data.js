// Reads the data of the page: base64 in, an object out whose columns are arrays of numbers. See analyze/src/page/pack.rs.

/** @typedef {{at: number, count: number, delta: boolean}} Packed */

/** Reads and inflates the data. */
export async function read() {
  const text = document.getElementById("data")?.textContent ?? "";
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + length));
  return { ...JSON.parse(json), bytes: bytes.subarray(4 + length) };
}

/**
 * Returns the values of a column. Missing ones are NaN.
 * @param {Uint8Array} bytes
 * @param {Packed} column
 */
export function unpack(bytes, { at, count, delta }) {
  const values = new Float64Array(count);
  let before = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    let number = byte & 0x7f;
    for (let scale = 128; byte >= 128; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 0x7f) * scale;
    }
    if (number === 0) {
      values[i] = NaN;
      continue;
    }
    number -= 1;
    const value = number % 2 === 0 ? number / 2 : -(number + 1) / 2;
    before = delta ? before + value : value;
    values[i] = before;
  }
  return values;
}
