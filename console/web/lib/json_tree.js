// JSON text as a tree that keeps every literal as it was sent: huge numbers, doubled keys, any depth.

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}[\],:"]+))/gy;
const NODES_MOST = 5000;

/**
 * @typedef {object} Node
 * @property {'object' | 'array' | 'literal'} kind
 * @property {string | null} key text of the key, without quotes
 * @property {string} raw text of a literal
 * @property {Node[]} items
 */

/** Return the tree of a JSON text, or null if it is none; `isCut` if it has more than 5,000 nodes or ends early.
 * @param {string} text @returns {{root: Node, isCut: boolean} | null} */
export function parseTree(text) {
  TOKEN.lastIndex = 0;
  /** @type {Node} */
  const top = { kind: 'array', key: null, raw: '', items: [] };
  const open = [top];
  /** @type {string | null} */
  let key = null;
  let nodes = 0, at = 0, isCut = false;
  const add = (/** @type {Node['kind']} */ kind, /** @type {string} */ raw) => {
    const node = { kind, key, raw, items: [] };
    key = null;
    nodes += 1;
    open[open.length - 1].items.push(node);
    return node;
  };
  for (;;) {
    const found = TOKEN.exec(text);
    if (!found) { isCut = at < text.length && text.slice(at).trim() !== ''; break; }
    at = TOKEN.lastIndex;
    if (nodes >= NODES_MOST) { isCut = true; break; }
    const [, sign, string, word] = found;
    if (sign === '{' || sign === '[') open.push(add(sign === '{' ? 'object' : 'array', ''));
    else if (sign === '}' || sign === ']') { if (open.length > 1) open.pop(); }
    else if (string !== undefined) {
      const after = text.slice(at, at + 200).match(/^\s*:/);
      if (after && open[open.length - 1].kind === 'object' && key === null) { key = unquoted(string); TOKEN.lastIndex = at += after[0].length; }
      else add('literal', string);
    } else if (word !== undefined) add('literal', word);
  }
  if (!top.items.length) return null;
  return { root: top.items[0], isCut: isCut || open.length > 1 };
}

/** Return the text of a JSON string; as it is if it is not valid. @param {string} raw */
export function unquoted(raw) {
  try { return String(JSON.parse(raw)); } catch { return raw.slice(1, -1); }
}

/** Return each number of a tree by its path, for charts and differences. @param {Node} root @returns {[string, string][]} */
export function literals(root) {
  /** @type {[string, string][]} */
  const found = [];
  /** @type {[Node, string][]} */
  const rest = [[root, '']];
  while (rest.length && found.length < 500) {
    const [node, path] = /** @type {[Node, string]} */ (rest.pop());
    if (node.kind === 'literal') { found.push([path, node.raw]); continue; }
    for (let index = node.items.length - 1; index >= 0; index--) {
      const item = node.items[index];
      const name = node.kind === 'object' ? item.key ?? '' : String(index);
      rest.push([item, path ? `${path}.${name}` : name]);
    }
  }
  return found;
}
