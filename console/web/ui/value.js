// The value of a record: JSON as a tree, text, or bytes in hexadecimal. The record of a view is chosen by links.
import { html, useEffect, useState } from '../lib/html.js';
import { url } from '../lib/api.js';
import { bytes, count, plural, visible, visibleText } from '../lib/format.js';
import { parseTree, unquoted } from '../lib/json_tree.js';

const OPEN_DEPTH = 3;
const DEPTH_MOST = 60;
const HEX_BYTES = 4096;
const ITEMS_MOST = 200;

/** @param {{node: any, depth: number}} props */
function Branch({ node, depth }) {
  const key = node.key === null ? '' : html`<span class="key">${visible(node.key)}</span>: `;
  if (node.kind === 'literal') {
    const isText = node.raw.startsWith('"');
    return html`<div class="row">${key}<span class=${isText ? 'str' : 'lit'}>${isText ? `"${visible(unquoted(node.raw))}"` : visible(node.raw)}</span></div>`;
  }
  const [open, close] = node.kind === 'object' ? ['{', '}'] : ['[', ']'];
  if (!node.items.length) return html`<div class="row">${key}${open}${close}</div>`;
  if (depth >= DEPTH_MOST) return html`<div class="row">${key}${open} … ${close} <span class="muted">deeper levels are in the text</span></div>`;
  return html`<${Fold} node=${node} depth=${depth} label=${html`${key}${open}<span class="muted"> ${plural(node.items.length, node.kind === 'object' ? 'key' : 'item')} </span>${close}`} />`;
}

/** A level of the tree; its contents are made when it is opened. @param {{node: any, depth: number, label: any}} props */
function Fold({ node, depth, label }) {
  const [open, setOpen] = useState(depth < OPEN_DEPTH);
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}><summary>${label}</summary>
    ${open && html`<div>${node.items.slice(0, ITEMS_MOST).map((/** @type {any} */ item, /** @type {number} */ index) => html`<${Branch} key=${index} node=${item} depth=${depth + 1} />`)}${node.items.length > ITEMS_MOST && html`<div class="row muted">${count(node.items.length - ITEMS_MOST)} more are in the text</div>`}</div>`}</details>`;
}

/** @param {{text: string}} props */
function JsonTree({ text }) {
  const tree = parseTree(text);
  if (!tree) return html`<div class="value">${visibleText(text)}</div>`;
  return html`<div class="value json"><${Branch} node=${tree.root} depth=${0} />${tree.isCut && html`<p class="muted">The rest is not shown here.</p>`}</div>`;
}

/** Return lines of 16 bytes: place, hexadecimal, characters. @param {Uint8Array} data */
export function hexLines(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = Array.from(data.subarray(at, at + 16));
    const digits = part.map((one, index) => one.toString(16).padStart(2, '0') + (index === 7 ? ' ' : '')).join(' ').padEnd(48);
    lines.push(`${at.toString(16).padStart(6, '0')}  ${digits}  ${part.map((one) => (one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : '.')).join('')}`);
  }
  return lines.join('\n');
}

/** Return bytes of hexadecimal text. @param {string} text */
export const fromHex = (text) => new Uint8Array((text.match(/../g) ?? []).map((pair) => parseInt(pair, 16)));

/** @param {{data: Uint8Array, whole?: number}} props */
export const Hex = ({ data, whole = data.length }) => html`<div class="value hex">${hexLines(data.subarray(0, HEX_BYTES))}</div>
  ${whole > Math.min(data.length, HEX_BYTES) && html`<p class="muted small">${count(Math.min(data.length, HEX_BYTES))} of ${count(whole)} bytes; the download has all.</p>`}`;

/** Bytes of a record that are fetched when they are looked at. @param {{path: string}} props */
function RawHex({ path }) {
  const [data, setData] = useState(/** @type {Uint8Array | string | null} */ (null));
  useEffect(() => {
    const stop = new AbortController();
    setData(null);
    fetch(url(path), { signal: stop.signal, credentials: 'same-origin' })
      .then(async (response) => setData(response.ok ? new Uint8Array(await response.arrayBuffer()) : 'The bytes cannot be read.'))
      .catch(() => { if (!stop.signal.aborted) setData('The console does not answer.'); });
    return () => stop.abort();
  }, [path]);
  if (data === null) return html`<p class="muted">Loading …</p>`;
  if (typeof data === 'string') return html`<p>${data}</p>`;
  return html`<${Hex} data=${data} />`;
}

/**
 * @param {object} props
 * @param {{kind: string, text: string, is_cut?: boolean}} props.value
 * @param {string | null} [props.raw] path of its bytes in the API
 * @param {number} [props.size]
 */
export function Value({ value, raw = null, size }) {
  const views = /** @type {string[]} */ ([value.kind === 'json' || value.kind === 'messagepack' ? 'Tree' : null, value.kind === 'binary' ? null : 'Text', raw || value.kind === 'binary' ? 'Bytes' : null].filter(Boolean));
  const [chosen, setChosen] = useState('');
  const view = views.includes(chosen) ? chosen : views[0];
  if (value.kind === 'empty') return html`<p class="muted">The value is empty.</p>`;
  return html`<div>
    <div class="bar" role="group" aria-label="How the value is shown">${views.map((one) => html`<button key=${one} class="button small" aria-pressed=${one === view ? 'true' : 'false'} onClick=${() => setChosen(one)}>${one}</button>`)}
      <span class="muted small">${value.kind === 'messagepack' ? 'MessagePack' : value.kind === 'json' ? 'JSON' : value.kind}${size === undefined ? '' : `, ${bytes(size)}`}</span>
      <span class="grow"></span>${raw && html`<a href=${url(raw)} download>Download</a>`}</div>
    <div class="value-box" tabindex="0" role="region" aria-label="Value">${view === 'Tree' ? html`<${JsonTree} text=${value.text} />`
      : view === 'Text' ? html`<div class="value">${visibleText(value.text)}</div>`
        : raw ? html`<${RawHex} path=${raw} />` : html`<${Hex} data=${fromHex(value.text)} />`}</div>
    ${value.is_cut && html`<p class="muted small">Only the beginning is shown.</p>`}</div>`;
}

/** One line of a value for a table. @param {{value: {kind: string, text: string, is_cut?: boolean} | null, hidden?: boolean}} props */
export function Preview({ value, hidden = false }) {
  if (hidden) return html`<span class="muted">not allowed</span>`;
  if (!value) return html`<span class="muted">–</span>`;
  if (value.kind === 'empty') return html`<span class="muted">(empty)</span>`;
  const text = value.text.length > 160 ? `${value.text.slice(0, 160)}…` : value.text;
  return html`<code class="clip"><bdi>${value.kind === 'binary' ? text.replace(/../g, '$& ') : visible(text)}</bdi></code>`;
}
