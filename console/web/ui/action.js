// Actions of an operator: a button, and a dialog that states the effect in numbers before anything is done.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { post } from '../lib/api.js';
import { visible } from '../lib/format.js';
import { href } from '../lib/router.js';
import { Command, Dialog, State } from './parts.js';

/** Whether the caller may act here; without it no page shows a button. @param {any} me */
export const mayAct = (me) => Boolean(me?.actions && me.role === 'operator');

/**
 * Button that opens the dialog of an action; nothing for a caller who may not act.
 * @param {object} props
 * @param {any} props.me
 * @param {string} props.label on the buttons: a verb and what it is done to
 * @param {Record<string, any>} props.body action and arguments of the API, in front of those of the fields
 * @param {Record<string, any>} [props.first] values of the fields at first
 * @param {(values: Record<string, any>, set: (name: string, value: any) => void) => any} [props.fields] what the operator chooses
 * @param {(values: Record<string, any>) => Record<string, any> | null} [props.arguments] of the values; null while one is missing
 * @param {boolean} [props.danger] it loses something
 * @param {boolean} [props.small]
 * @param {() => void} [props.onDone]
 */
export function Action({ me, label, small = false, danger = false, ...rest }) {
  if (!mayAct(me)) return null;
  return html`<button type="button" class=${`button${small ? ' small' : ''}${danger ? ' danger' : ''}`} aria-haspopup="dialog" onClick=${() => chosen.set({ ...rest, label, danger })}>${label} …</button>`;
}

/** The action whose dialog is open. The shell shows it: what the button belongs to may be gone when it is done. */
const chosen = {
  /** @type {any} */ action: null,
  /** @type {(action: any) => void} */ show: () => {},
  /** @param {any} action */
  set(action) { this.action = action; this.show(action); },
};

/** The dialog of an action, if one is open; once, in the shell. */
export function OpenAction() {
  const [action, setAction] = useState(chosen.action);
  chosen.show = setAction;
  return action && html`<${ActionDialog} ...${action} onClose=${() => chosen.set(null)} />`;
}

/** The effect as a sentence. @param {string} text */
const sentence = (text) => `${visible(text.charAt(0).toUpperCase() + text.slice(1))}.`;

/** @typedef {{text: string, command: string | null, confirm: string | null, result: Record<string, any>}} Effect */

/** Ask the API for the effect of an action whenever its arguments change. @param {Record<string, any> | null} body */
function usePreview(body) {
  const [state, setState] = useState(/** @type {{for: string, effect: Effect | null, problem: string}} */ ({ for: '', effect: null, problem: '' }));
  const text = JSON.stringify(body);
  useEffect(() => {
    if (body === null) return undefined;
    let gone = false;
    const timer = setTimeout(async () => {
      try {
        const effect = await post('actions', { ...body, preview: true });
        if (!gone) setState({ for: text, effect, problem: '' });
      } catch (error) {
        if (!gone) setState({ for: text, effect: null, problem: /** @type {any} */ (error).message });
      }
    }, state.for ? 300 : 0);
    return () => { gone = true; clearTimeout(timer); };
  }, [text]);
  return state.for === text ? state : { effect: null, problem: '' };
}

/** @param {any} props */
function ActionDialog({ label, body, first = {}, fields, arguments: toArguments, danger, onDone, onClose }) {
  const [values, setValues] = useState(first);
  const [typed, setTyped] = useState('');
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState('');
  const [done, setDone] = useState(/** @type {Effect | null} */ (null));
  const close = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const more = toArguments ? toArguments(values) : {};
  const asked = more === null ? null : { ...body, ...more };
  const { effect, problem } = usePreview(done ? null : asked);
  const set = (/** @type {string} */ name, /** @type {any} */ value) => setValues((/** @type {any} */ old) => ({ ...old, [name]: value }));
  const isConfirmed = effect !== null && (effect.confirm === null || typed === effect.confirm || typed === visible(effect.confirm));
  useEffect(() => { if (done) close.current?.focus(); }, [done]);
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isConfirmed || busy) return;
    setBusy(true);
    setFailure('');
    try {
      setDone(await post('actions', asked));
      onDone?.();
    } catch (error) { setFailure(/** @type {any} */ (error).message); }
    setBusy(false);
  };
  if (done) {
    return html`<${Dialog} title=${label} onClose=${onClose} footer=${html`<button type="button" class="button" ref=${close} onClick=${onClose}>Close</button>`}>
      <div role="status"><p><${State} kind="good">${done.result.is_running ? 'Begun; it continues after this.' : 'Done.'}<//></p><p class="effect">${sentence(done.text)}</p>
        ${done.result.damaged_segments !== undefined && html`<p>${done.result.damaged_segments ? html`<${State} kind="bad">${done.result.damaged_segments} segments are damaged<//>` : 'Every sealed segment is sound.'}</p>`}</div>
      <p class="small"><a href=${href('/alerts', { view: 'actions' })} onClick=${onClose}>It is in the record of actions</a></p><//>`;
  }
  const footer = html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
    <button type="submit" form="action" class=${`button primary${danger ? ' bad' : ''}`} disabled=${!isConfirmed || busy}>${busy ? 'Working …' : label}</button>`;
  return html`<${Dialog} title=${label} onClose=${onClose} footer=${footer}>
    <form id="action" class="form action" onSubmit=${run}>
      ${fields && fields(values, set)}
      <div class="effect" role="status">${problem ? html`<${State} kind="bad">${visible(problem)}<//>`
        : effect ? sentence(effect.text) : html`<span class="muted">${asked === null ? 'Fill in the fields to see the effect.' : 'Working out the effect …'}</span>`}</div>
      ${effect && effect.confirm !== null && html`<label class="confirm"><span>Type <code>${visible(effect.confirm)}</code> to confirm</span>
        <input class="input" autocomplete="off" spellcheck=${false} value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></label>`}
      ${failure && html`<p role="alert"><${State} kind="bad">It failed: ${visible(failure)}<//></p>`}
      ${effect?.command && html`<details><summary class="small muted">The same as a command</summary><${Command} text=${effect.command} /></details>`}
    </form><//>`;
}

/** Choice among some values. @param {{label: string, value: any, options: [any, string][], onChange: (value: string) => void}} props */
export const Choice = ({ label, value, options, onChange }) => html`<label>${label}<select class="input" value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
  ${options.map(([one, text]) => html`<option key=${one} value=${one} selected=${String(one) === String(value)}>${text}</option>`)}</select></label>`;
