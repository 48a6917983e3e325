// Conditions that need attention, the events of the server, and the audit of actions.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, useRoute } from '../lib/router.js';
import { bytes, count, duration, latency } from '../lib/format.js';
import { Empty, Loaded, PageHead, Segmented, State, Time } from '../ui/parts.js';
import { Action, Choice } from '../ui/action.js';
import { Table } from '../ui/table.js';
import { Timeline } from './client.js';

/** Words of a condition's name. @param {string} name */
const words = (name) => name.replace('Timestone', '').replace(/(?<!^)([A-Z])/g, ' $1').toLowerCase().replace(/^./, (one) => one.toUpperCase());
/** @param {number | null} value @param {string} unit */
const figure = (value, unit) => (value === null ? '–' : unit === 'bytes' ? (value % 1e9 === 0 ? `${value / 1e9} GB` : bytes(value)) : unit === 'seconds' ? (value < 10 ? latency(value) : duration(value)) : `${count(value)} ${unit}`);
/** Markdown of one line as text: links become their words. @param {string} text */
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll('`', '');

function Conditions() {
  const api = useApi('alerts', {}, { every: 3000 });
  return html`<${Loaded} api=${api} what="the alerts">${(/** @type {any} */ data) => html`<${Table} caption="Conditions" rows=${data.alerts} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
    { label: 'Condition', heading: true, cell: (/** @type {any} */ row) => words(row.name) },
    { label: 'State', cell: (/** @type {any} */ row) => (row.state === 'firing' ? html`<${State} kind=${row.severity === 'critical' ? 'bad' : 'warn'}>${row.severity}<//>` : row.state === 'quiet' ? html`<${State} kind="good">fine<//>` : html`<${State} kind="off">unknown<//>`) },
    { label: 'Since', priority: 2, cell: (/** @type {any} */ row) => html`<${Time} us=${row.since_us} />` },
    { label: 'Figure', number: true, priority: 2, cell: (/** @type {any} */ row) => figure(row.value, row.unit) },
    { label: 'Limit', number: true, priority: 3, cell: (/** @type {any} */ row) => figure(row.limit, row.unit) },
    { label: 'What', className: 'wide', cell: (/** @type {any} */ row) => (row.state === 'firing' ? html`<strong>${row.text}</strong>` : html`<span class="muted">${plain(row.when)}</span>`) },
    { label: 'What to do', className: 'wide', priority: 2, cell: (/** @type {any} */ row) => html`${row.then.includes('.md](') && plain(row.then).endsWith('.md') ? '' : plain(row.then)} <span class="muted small nowrap">docs/${row.docs}</span>` },
  ]} /><p class="table-foot">The same conditions are in <code>monitoring/alerts.yaml</code> for Prometheus.</p>`}<//>`;
}

/** @param {{path: string, event?: string}} props */
function Log({ path, event }) {
  const { params } = useRoute();
  const before = params.get('before');
  const api = useApi(path, { event, before, limit: 100 }, { every: before ? 0 : 3000 });
  return html`<section class="card"><div class="body"><${Timeline} api=${api} withClient empty=${event === 'trace' ? html`<${Empty} title="No traces"><p>A server that runs with <code>--mqtt-traces-per-s</code> records the way of some batches of publishes.</p><//>` : undefined} /></div></section>`;
}

const LEVELS = /** @type {[any, string][]} */ ([['debug', 'debug: everything'], ['info', 'info'], ['warning', 'warning'], ['error', 'error: only failures']]);

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const view = params.get('view') ?? 'conditions';
  const to = (/** @type {string | null} */ one) => changed({ view: one, before: null });
  return html`<${PageHead} title="Alerts"><${Action} me=${me} label="Log level" body=${{ action: 'log_level', duration_s: 600 }} first=${{ level: 'debug' }}
      arguments=${(/** @type {any} */ values) => ({ level: values.level })}
      fields=${(/** @type {any} */ values, /** @type {any} */ set) => html`<${Choice} label="Lowest level for 10 minutes" value=${values.level} options=${LEVELS} onChange=${(/** @type {string} */ one) => set('level', one)} />`} />
    <${Segmented} label="View" options=${[['Conditions', to(null), view === 'conditions'], ['Events', to('events'), view === 'events'], ['Actions', to('actions'), view === 'actions'], ['Traces', to('traces'), view === 'traces']]} /><//>
    ${view === 'events' ? html`<${Log} path="events" key="events" />` : view === 'actions' ? html`<${Log} path="actions" key="actions" />` : view === 'traces' ? html`<${Log} path="events" event="trace" key="traces" />` : html`<${Conditions} />`}`;
}
