// Small parts that every page uses: names, times, states, banners, copying.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { time, utc, visible } from '../lib/format.js';

/** Text of a user with hidden characters written out. @param {{text: string | null | undefined, clip?: boolean}} props */
export function Name({ text, clip = false }) {
  if (text === null || text === undefined) return html`<span class="muted">–</span>`;
  const shown = visible(text);
  const inner = text === '' ? html`<span class="muted">(empty)</span>` : html`<bdi>${shown}</bdi>`;
  return clip ? html`<span class="clip" title=${shown}>${inner}</span>` : inner;
}

/** Local time with UTC on hover. @param {{us: number | null | undefined, exact?: boolean}} props */
export const Time = ({ us, exact = false }) => (us
  ? html`<time class="num nowrap" dateTime=${utc(us)} title=${`${utc(us)} (UTC)`}>${time(us, exact)}</time>`
  : html`<span class="muted">–</span>`);

/** A word with a shape of its own. @param {{kind: 'good' | 'warn' | 'bad' | 'off' | '', children?: any}} props */
export const State = ({ kind, children }) => html`<span class=${`state ${kind}`}>${children}</span>`;

/** @param {{kind?: string, title?: string, children?: any}} props */
export const Banner = ({ kind = 'warn', title, children }) => html`
  <div class=${`banner ${kind}`} role=${kind === 'bad' ? 'alert' : 'status'}>${title && html`<strong>${title}</strong>`} <span>${children}</span></div>`;

/** What stands in the place of rows that do not exist. @param {{title: string, children?: any}} props */
export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children}</div>`;

/**
 * Show a page's data, or the state in its place: loading, not allowed, damaged, not found, no answer.
 * @param {{api: {data: any, error: any, again: () => void}, children: (data: any) => any, what?: string}} props
 */
export function Loaded({ api, children, what = 'this' }) {
  const { data, error } = api;
  if (error && (!data || ![0, 429, 502, 503].includes(error.status))) return html`<${Failure} error=${error} what=${what} again=${api.again} />`;
  if (!data) return html`<div class="card loading" role="status">Loading ${what} …</div>`;
  return children(data);
}

/** Why something cannot be shown, and what to do. @param {{error: any, what?: string, again?: () => void}} props */
export function Failure({ error, what = 'this', again }) {
  const kind = String(error.type).split(':').at(-1);
  const cases = /** @type {Record<string, [string, any]>} */ ({
    'not-allowed': ['Not allowed', html`<p>${error.detail ? visible(error.detail) : `Your role may not see ${what}.`}</p>`],
    'login-required': ['A login is required', html`<p><a href="/login">Log in</a> to see ${what}.</p>`],
    'damaged': ['The data is damaged', html`<p>${visible(error.detail)}</p><p><code>timestone inspect --deep DIR</code> names each damaged record.</p>`],
    'not-found': ['Not found', html`<p>${visible(error.detail)}</p>`],
    'gone': ['No longer there', html`<p>${visible(error.detail)}</p>`],
    'no-server': ['No server runs on this store', html`<p>${visible(error.detail)} What the store itself has is on the other pages.</p>`],
    'too-many-requests': ['Too many requests', html`<p>The console limits the requests of a session. It tries again in a moment.</p>`],
  });
  const [title, text] = cases[kind ?? ''] ?? [error.status ? error.title || 'The request failed' : 'The console does not answer', html`<p>${visible(error.detail ?? error.message)}</p>`];
  return html`<div class="card"><div class="empty" role="status"><strong>${title}</strong>${text}${again && html`<p><button class="button small" onClick=${again}>Try again</button></p>`}</div></div>`;
}

/** Button that copies text, and says so. @param {{text: string, label?: string}} props */
export function CopyButton({ text, label = 'Copy' }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return undefined;
    const timer = setTimeout(() => setDone(false), 2000);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); setDone(true); } catch { setDone(false); }
  };
  return html`<button class="button small" onClick=${copy}>${done ? 'Copied' : label}<span class="hidden" aria-live="polite">${done ? 'Copied' : ''}</span></button>`;
}

/** A command to copy. @param {{text: string}} props */
export const Command = ({ text }) => html`<div class="copy"><code>${text}</code><${CopyButton} text=${text} /></div>`;

/** Modal dialog; the browser keeps the focus inside and gives it back. @param {{title: string, onClose: () => void, children?: any, footer?: any}} props */
export function Dialog({ title, onClose, children, footer }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const before = useRef(/** @type {Element | null} */ (null));
  useEffect(() => {
    before.current = document.activeElement;
    box.current?.showModal();
    return () => {
      const there = before.current?.isConnected ? before.current : document.querySelector('main h1');
      /** @type {any} */ (there)?.focus();
    };
  }, []);
  // Not for a press that began inside, as to select text.
  const outside = (/** @type {MouseEvent} */ event) => { if (event.target === box.current) onClose(); };
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${onClose} onMouseDown=${outside}>
    <header><h2 id="dialog-title">${title}</h2><button class="button quiet" onClick=${onClose} aria-label="Close">✕</button></header>
    <div class="body">${children}</div>
    ${footer ? html`<footer>${footer}</footer>` : html`<footer><button class="button" onClick=${onClose}>Close</button></footer>`}
  </dialog>`;
}

/** Links that choose one of several views. @param {{label: string, options: [string, string, boolean][]}} props text, address, chosen */
export const Segmented = ({ label, options }) => html`
  <nav aria-label=${label}><ul class="segmented">${options.map(([text, to, chosen]) => html`
    <li><a href=${to} aria-current=${chosen ? 'true' : undefined}>${text}</a></li>`)}</ul></nav>`;

/** @param {{title: any, crumbs?: any, children?: any}} props */
export const PageHead = ({ title, crumbs, children }) => html`
  ${crumbs && html`<nav class="crumbs" aria-label="Where this is">${crumbs}</nav>`}
  <div class="page-head"><h1 tabindex="-1">${title}</h1><span class="grow"></span>${children}</div>`;

/** Bar of a share between 0 and 1, beside its number. @param {{part: number}} props */
export function Meter({ part }) {
  const width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  return html`<span class="meter" aria-hidden="true"><i style=${{ width }}></i></span>`;
}
