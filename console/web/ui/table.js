// Table of rows that the server searches, sorts and pages. Its state is in the URL.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { url } from '../lib/api.js';
import { count } from '../lib/format.js';
import { changed, go, useRoute } from '../lib/router.js';
import { Empty } from './parts.js';

/**
 * @typedef {object} Column
 * @property {string} label
 * @property {(row: any) => any} cell
 * @property {string} [sort] name of the order on the server
 * @property {boolean} [up] the first click sorts upwards
 * @property {boolean} [number]
 * @property {1 | 2 | 3} [priority] 1: hidden on a phone, 2: and on a small tablet, 3: and on a tablet
 * @property {boolean} [heading] the cell names the row
 * @property {string} [className]
 */

/** Sort word of the other direction. @param {Column} column @param {string} current */
function nextSort(column, current) {
  const down = `-${column.sort}`;
  if (current === down) return column.sort;
  if (current === column.sort) return down;
  return column.up ? column.sort : down;
}

/**
 * @param {object} props
 * @param {string} props.caption
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {string} [props.sort] order in force, with `-` for downwards
 * @param {boolean} [props.busy]
 * @param {any} [props.empty]
 * @param {(row: any) => string | number} [props.keyOf]
 */
export function Table({ caption, columns, rows, sort = '', busy = false, empty, keyOf }) {
  const head = (/** @type {Column} */ column) => {
    const classes = [column.number && 'n', column.priority && `p${column.priority}`, column.className].filter(Boolean).join(' ');
    if (!column.sort) return html`<th scope="col" class=${classes}>${column.label}</th>`;
    const here = sort.replace('-', '') === column.sort;
    const down = sort.startsWith('-');
    const to = () => go(changed({ sort: nextSort(column, sort), cursor: null, after: null }));
    return html`<th scope="col" class=${classes} aria-sort=${here ? (down ? 'descending' : 'ascending') : undefined}>
      <button class="sort" onClick=${to}>${column.label}<span class="arrow" aria-hidden="true">${here ? (down ? '↓' : '↑') : ''}</span></button></th>`;
  };
  return html`<div class="table-box" role="region" aria-label=${`Table: ${caption}`} tabindex="0" aria-busy=${busy ? 'true' : undefined}>
    <table><caption class="hidden">${caption}</caption>
      <thead><tr>${columns.map(head)}</tr></thead>
      <tbody>${rows.map((row, index) => html`<tr key=${keyOf ? keyOf(row) : index}>${columns.map((column) => {
        const classes = [column.number && 'n', column.priority && `p${column.priority}`, column.className].filter(Boolean).join(' ');
        return column.heading
          ? html`<th scope="row" class=${classes}>${column.cell(row)}</th>`
          : html`<td class=${classes}>${column.cell(row)}</td>`;
      })}</tr>`)}</tbody></table>
    ${rows.length === 0 && (empty ?? html`<${Empty} title="Nothing here" />`)}
  </div>`;
}

/** Field that searches on the server while one types. @param {{name?: string, label: string, placeholder?: string}} props */
export function Search({ name = 'search', label, placeholder }) {
  const { params } = useRoute();
  const there = params.get(name) ?? '';
  const [text, setText] = useState(there);
  const timer = useRef(/** @type {any} */ (null));
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => { if (document.activeElement !== field.current) setText(there); }, [there]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const apply = (/** @type {string} */ value) => {
    clearTimeout(timer.current);
    if (value !== (new URLSearchParams(location.search).get(name) ?? '')) go(changed({ [name]: value, cursor: null, after: null }), { replace: true });
  };
  const typed = (/** @type {any} */ event) => {
    const value = event.target.value;
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => apply(value), 250);
  };
  const enter = (/** @type {any} */ event) => { event.preventDefault(); apply(text); };
  return html`<form class="search" role="search" onSubmit=${enter}>
    <input class="input" type="search" data-search ref=${field} aria-label=${label} placeholder=${placeholder ?? label} value=${text} onInput=${typed}
      autocomplete="off" spellcheck=${false} maxlength="1000" />${text === '' && html`<kbd aria-hidden="true">/</kbd>`}</form>`;
}

/**
 * Line below a table: how many rows, the next page, CSV.
 * @param {{shown: number, total?: number | null, next?: string | null, param?: string, what: string, note?: any, list?: {path: string, query: Record<string, any>, key: string}}} props
 *   list: the call that has the rows, for the whole of them (up to 500) as a file
 */
export function TableFoot({ shown, total = null, next = null, param = 'after', what, note, list }) {
  const { params } = useRoute();
  const later = params.has(param);
  return html`<div class="table-foot"><span class="num" role="status">${total === null || total === undefined
    ? `${count(shown)} ${what}${next ? ' on this page' : ''}` : `${count(shown)} of ${count(total)} ${what}`}</span>${note && html`<span>${note}</span>`}
    <span class="grow"></span>
    ${list && html`<a class="button quiet small" href=${url(list.path, { ...list.query, format: 'csv' })} download=${`${list.key}.csv`}>CSV</a><a class="button quiet small" href=${url(list.path, list.query)} download=${`${list.key}.json`}>JSON</a>`}
    ${later && html`<a class="button small" href=${changed({ [param]: null })}>First page</a>`}
    ${next && html`<a class="button small" rel="next" href=${changed({ [param]: next })}>Next page</a>`}
  </div>`;
}
