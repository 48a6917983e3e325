// What runs here: versions, settings in force, licences.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { count, visible } from '../lib/format.js';
import { Loaded, PageHead, State, Time } from '../ui/parts.js';
import { Action } from '../ui/action.js';
import { Table } from '../ui/table.js';

const VENDORED = [['preact', '11.2.0', 'MIT', 'LICENSE-preact'], ['htm', '3.1.1', 'Apache-2.0', 'LICENSE-htm'], ['uplot', '1.6.32', 'MIT', 'LICENSE-uplot']];
const STATES = /** @type {Record<string, [string, string]>} */ ({ running: ['good', 'running'], silent: ['bad', 'does not answer'], stopped: ['off', 'not running'] });

/** @param {{facts: [string, any][], caption: string}} props */
const Facts = ({ facts, caption }) => html`<${Table} caption=${caption} rows=${facts} keyOf=${(/** @type {any} */ row) => row[0]} columns=${[
  { label: 'Name', heading: true, cell: (/** @type {any} */ row) => html`<code>${row[0]}</code>` }, { label: 'Value', className: 'wide', cell: (/** @type {any} */ row) => visible(String(row[1])) }]} />`;

/** @param {{me: any}} props */
export function Page({ me }) {
  const api = useApi('about', {}, { every: 10_000 });
  return html`<${PageHead} title="About"><${Action} me=${me} label="Reload files" body=${{ action: 'reload' }} onDone=${api.again} /><//><${Loaded} api=${api} what="this page">${(/** @type {any} */ data) => {
    const [kind, word] = STATES[data.server.state] ?? ['off', data.server.state];
    return html`<div class="grid"><section class="card"><header><h2>Timestone</h2></header><div class="body"><dl class="facts">
        <dt>Version</dt><dd>${data.version}</dd><dt>Store</dt><dd>${visible(data.store)}</dd><dt>Engine kernel</dt><dd>${data.kernel}</dd>
        <dt>Server</dt><dd><${State} kind=${kind}>${word}<//>${data.server.pid ? `, process ${data.server.pid}` : ''}${data.server.version ? `, version ${data.server.version}` : ''}</dd>
        <dt>Started</dt><dd><${Time} us=${data.server.started_us} /></dd><dt>Last sample</dt><dd><${Time} us=${data.server.last_sample_us} /></dd>
        <dt>API</dt><dd><a href="/api/v1/openapi.json">/api/v1/openapi.json</a></dd></dl></div></section>
      <section class="card"><header><h2>Settings of the console</h2></header><${Facts} caption="Settings of the console" facts=${Object.entries(data.settings)} /></section></div>
      <div class="grid wide">${Object.entries(data.fronts).filter(([, figures]) => Object.keys(/** @type {any} */ (figures)).length).map(([name, figures]) => html`<section class="card" key=${name}><header><h2>Figures of ${name}</h2></header><div class="body columns"><dl class="facts">${Object.entries(/** @type {any} */ (figures)).map(([key, value]) => html`<div key=${key}><dt>${key.replaceAll('_', ' ')}</dt><dd>${/^\d+$/.test(String(value)) ? count(Number(value)) : visible(String(value))}</dd></div>`)}</dl></div></section>`)}
      <section class="card"><header><h2>Libraries of the console</h2></header><${Table} caption="Libraries" rows=${[...data.licences.map((/** @type {any} */ one) => [one.name, one.version, one.licence, null]), ...VENDORED]} keyOf=${(/** @type {any} */ row) => row[0]} columns=${[
        { label: 'Library', heading: true, cell: (/** @type {any} */ row) => row[0] }, { label: 'Version', cell: (/** @type {any} */ row) => row[1] },
        { label: 'Licence', cell: (/** @type {any} */ row) => (row[3] ? html`<a href=${`/vendor/${row[3]}`} target="_blank" rel="noopener">${row[2]}</a>` : row[2]) }]} /></section></div>`;
  }}<//>`;
}
