// What is drawn behind everything else, on a canvas that is not shown. While only time moves, the picture is shifted by whole pixels, and
// only what comes into view is drawn.
import { el } from "./dom.js";

/**
 * Returns the canvas and `show`, which draws a range of time on it.
 */
export function movingGround() {
  const canvas = el("canvas");
  const context = canvas.getContext("2d");
  let shown = /** @type {any} */ (null);

  /**
   * Draws a range of time between the pixels `left` and `width`, and returns the range that is drawn: it differs by half a pixel at most.
   * `draw` draws the part between two pixels. All is drawn anew if a value of `look` has changed.
   * @param {{from: number, to: number, left: number, width: number, height: number, ratio: number, look: any[]}} wanted
   * @param {(context: any, view: {from: number, to: number}, left: number, right: number) => void} draw
   */
  function show({ from, to, left, width, height, ratio, look }, draw) {
    const length = to - from;
    const perPixel = length / ((width - left) * ratio);
    // In pixels of the screen, as the edges.
    const [first, end] = [Math.ceil(left * ratio), Math.round(width * ratio)];
    const sameLook = shown !== null && [left, width, height, ratio, ...look].every((value, at) => value === shown.look[at]);
    const shift = sameLook && Math.abs(shown.perPixel / perPixel - 1) < 1e-9 ? Math.round((from - shown.from) / perPixel) : NaN;
    const part = (begin, until) => {
      context.save();
      context.beginPath();
      context.rect(begin, 0, until - begin, canvas.height);
      context.clip();
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw(context, view, begin / ratio, until / ratio);
      context.restore();
    };
    const moves = Math.abs(shift) < end - first;
    const view = moves ? { from: shown.from + shift * perPixel, to: shown.from + shift * perPixel + length } : { from, to };
    if (!moves) {
      canvas.width = end;
      canvas.height = Math.round(height * ratio);
      part(Math.floor(left * ratio), end);
    } else if (shift !== 0) {
      context.drawImage(canvas, -shift, 0);
      if (shift > 0) part(end - shift, end);
      else part(Math.floor(left * ratio), first - shift);
    }
    shown = { from: view.from, perPixel: moves ? shown.perPixel : perPixel, look: [left, width, height, ratio, ...look] };
    return view;
  }

  return { canvas, show };
}
