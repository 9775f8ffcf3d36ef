// Opens a page in Chromium at a width, and prints as JSON what is in sight: the name of the first row of a table whose numbers were
// scrolled, and the details of an interval together with the timeline. Arguments: the browser, the page, the width.
import { open } from "./browser.mjs";

const [program, file, width] = process.argv.slice(2);
const page = await open(program, file, { width: Number(width), height: 900 });
const found = await page.evaluate(`(async () => {
  const next = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const isInSight = (e) => { const b = e.getBoundingClientRect(); return b.left >= 0 && b.top >= 0 && b.right <= innerWidth && b.bottom <= innerHeight; };
  document.querySelector("#tables").scrollIntoView();
  document.querySelector(".scroll").scrollLeft = 1e6;
  await next();
  const name = isInSight(document.querySelector("tbody td.name"));
  document.querySelector("#timeline .beside").scrollIntoView({ block: "end" });
  klock.timeline.select(0, true);
  await next();
  const details = [".beside canvas", ".panel pre"].every((part) => isInSight(document.querySelector(part)));
  return { name, details, wide: document.documentElement.scrollWidth };
})()`);
console.log(JSON.stringify({ ...found, errors: page.errors }));
await page.close();
