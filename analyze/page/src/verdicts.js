// What `klock why` says: a card per lock that matters, and one line for the others.
import { el, sentence } from "./dom.js";

const CLASSES = ["verdict", "evidence", "advice", "prediction"];

/** @param {any} data @param {(id: number) => void} onLock */
export function verdictsView({ strings, verdicts: { answer, locks, hidden } }, onLock) {
  const name = (lock) => el("button", { class: "lock", title: "Show in the timeline", onclick: () => onLock(lock.lock_id) }, strings[lock.lock]);
  const finding = (texts, at) => el("div", { class: "finding" }, ...texts.map((text, of) => [strings[text], of]).filter(([text]) => text)
    .map(([text, of]) => el("p", { class: CLASSES[of] }, of === 0 ? `${at + 1}. ` : "", ...sentence(text))));
  const card = (lock) => el("article", {},
    el("h3", {}, name(lock)),
    el("p", { class: "cost" }, strings[lock.cost]),
    ...lock.findings.map(finding),
    ...lock.notes.map((note) => el("p", { class: "note" }, ...sentence(strings[note]))));
  const mattering = locks.filter((lock) => lock.matters);
  const others = locks.filter((lock) => !lock.matters);
  const rest = others.flatMap((lock, at) => [at ? ", " : "", name(lock)]);
  const more = hidden ? [`${others.length ? " and " : ""}${hidden.toLocaleString("en-US")} more`] : [];
  return [
    ...answer.length ? [el("div", { class: "answer" }, ...answer.map((line, at) => el(at ? "li" : "strong", {}, ...sentence(strings[line]))))] : [],
    ...mattering.length ? [el("div", { class: "cards" }, ...mattering.map(card))] : [],
    ...rest.length + more.length ? [el("p", { class: "others" }, mattering.length ? "Locks that matter less: " : "Locks that slow nobody down: ", ...rest, ...more)] : [],
  ];
}
