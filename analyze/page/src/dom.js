// Elements. Texts of the trace become text nodes and never markup.

/**
 * Makes an element.
 * @param {string} name
 * @param {Record<string, any>} [attributes] listeners begin with "on"
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, String(value));
  }
  node.append(...children);
  return node;
}

/** Returns the nodes of a sentence: what is between backticks is a command, which a click copies. @param {string} text @returns {Node[]} */
export function sentence(text) {
  return text.split("`").map((part, at) => at % 2 === 0 ? document.createTextNode(part) : el("code", {
    title: "Copy", onclick: () => navigator.clipboard?.writeText(part),
  }, part));
}

/** Makes a button. @param {string} text @param {string} title @param {() => void} onclick */
export const button = (text, title, onclick) => el("button", { title, onclick }, text);
