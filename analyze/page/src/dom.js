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
