// Publishing by hand: the form of a message, and the action that sends it.
import { html } from '../lib/html.js';
import { Action, Choice } from './action.js';

const QOS = /** @type {[any, string][]} */ ([[0, '0: at most once'], [1, '1: at least once'], [2, '2: exactly once']]);

/** @param {{me: any, topic?: string, onDone?: () => void}} props topic: fixed; without it the operator types one */
export function Publish({ me, topic, onDone }) {
  const isFixed = topic !== undefined;
  return html`<${Action} me=${me} label="Publish" body=${{ action: 'publish' }} first=${{ topic: topic ?? '', value: '', qos: 1, retain: false }} onDone=${onDone}
    arguments=${(/** @type {any} */ values) => (values.topic ? { topic: values.topic, value: values.value, qos: Number(values.qos), retain: values.retain } : null)}
    fields=${(/** @type {any} */ values, /** @type {any} */ set) => html`${!isFixed && html`<label>Topic<input class="input" value=${values.topic} autofocus spellcheck=${false} autocomplete="off" onInput=${(/** @type {any} */ event) => set('topic', event.target.value)} /></label>`}
      <label>Value<textarea class="input" spellcheck=${false} autofocus=${isFixed} value=${values.value} onInput=${(/** @type {any} */ event) => set('value', event.target.value)}></textarea></label>
      <div class="row"><${Choice} label="QoS" value=${values.qos} options=${QOS} onChange=${(/** @type {string} */ one) => set('qos', one)} />
        <label class="check"><input type="checkbox" checked=${values.retain} onChange=${(/** @type {any} */ event) => set('retain', event.target.checked)} /> Retain it for later subscribers</label></div>`} />`;
}
