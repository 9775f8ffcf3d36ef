// The keys and what the mouse does, in a dialog.
import { button, el } from "./dom.js";

const KEYS = [
  ["wheel", "scrolls the page; the rows, if the timeline was clicked"],
  ["Ctrl + wheel, + −, w s", "zooms the timeline, down to single nanoseconds"],
  ["drag", "selects rows and a range of time, and adds up what is in it"],
  ["Shift + drag, Shift + wheel, arrows, a d", "moves the timeline"],
  ["double click", "zooms in"],
  ["click", "shows an interval: its site, its stack, its chain"],
  ["Enter", "follows a wait to its holder, and on along the chain"],
  ["f", "zooms to what is selected"],
  ["0, n, p", "shows all, the next window, the one before"],
  ["Escape", "selects nothing"],
  ["/", "searches the table"],
  ["t", "switches between light and dark"],
  ["?", "shows this help"],
];

/** Makes the dialog. */
export function help() {
  const dialog = el("dialog", { class: "help", "aria-label": "Keys" }, el("h2", {}, "Keys and mouse"),
    el("table", {}, ...KEYS.map(([keys, does]) => el("tr", {}, el("th", { scope: "row" }, keys), el("td", {}, does)))),
    el("p", { class: "hint" }, "The address of the page has what it shows: a bookmark or a copied address leads back to it. A click on a command copies it."),
    button("Close", "Close the help (Escape)", () => dialog.close()));
  return dialog;
}
