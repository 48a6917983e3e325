// Logs of the store.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, rate, visible } from '../lib/format.js';
import { Empty, Loaded, PageHead, Segmented, State, Time } from '../ui/parts.js';
import { Search, Table, TableFoot } from '../ui/table.js';

export function Page() {
  const { params } = useRoute();
  const all = params.get('server') !== 'no';
  const query = { text: params.get('search'), after: params.get('after'), server: all ? null : 'false' };
  const api = useApi('logs', { ...query, limit: 100 }, { every: 2000 });
  return html`<${PageHead} title="Logs" />
    <div class="bar"><${Search} label="Search logs" placeholder="Part of a name" />
      <${Segmented} label="Which logs" options=${[['All', changed({ server: null, after: null }), all], ['Without those of the server', changed({ server: 'no', after: null }), !all]]} /></div>
    <${Loaded} api=${api} what="the logs">${(/** @type {any} */ data) => html`
      <${Table} caption="Logs" rows=${data.logs} busy=${api.busy} keyOf=${(/** @type {any} */ row) => `${row.log}-${row.partition}`}
        empty=${html`<${Empty} title=${query.text ? 'No log matches' : 'No logs yet'}><p>The first publish makes the log <code>mqtt</code>; <code>timestone append</code> makes others.</p><//>`}
        columns=${[
          { label: 'Log', heading: true, cell: (/** @type {any} */ row) => html`<a href=${href('/log', { log: row.log, partition: row.partition || null })}>${row.log}-${row.partition}</a>${row.is_server_log ? html` <span class="badge">server</span>` : ''}` },
          { label: 'State', cell: (/** @type {any} */ row) => (row.error ? html`<${State} kind="bad">cannot be read<//><div class="small break">${visible(row.error)}</div>` : html`<${State} kind="good">readable<//>`) },
          { label: 'Records', number: true, priority: 1, cell: (/** @type {any} */ row) => (row.error ? '–' : count(row.end_offset - row.start_offset)) },
          { label: 'Records /s', number: true, cell: (/** @type {any} */ row) => rate(row.appended_per_s) },
          { label: 'Bytes /s', number: true, priority: 2, cell: (/** @type {any} */ row) => (row.appended_bytes_per_s === null ? '–' : bytes(row.appended_bytes_per_s)) },
          { label: 'Topics', number: true, priority: 2, cell: (/** @type {any} */ row) => count(row.topics) },
          { label: 'Segments', number: true, priority: 3, cell: (/** @type {any} */ row) => count(row.segments) },
          { label: 'Offsets', number: true, priority: 3, cell: (/** @type {any} */ row) => (row.error ? '–' : `${count(row.start_offset)} – ${count(row.end_offset)}`) },
          { label: 'Spans', number: true, priority: 3, cell: (/** @type {any} */ row) => (row.oldest_us && row.newest_us ? duration((row.newest_us - row.oldest_us) / 1e6) : '–') },
          { label: 'Newest', priority: 2, cell: (/** @type {any} */ row) => html`<${Time} us=${row.newest_us} />` },
          { label: 'Open', priority: 1, cell: (/** @type {any} */ row) => html`<a href=${href('/records', { log: row.log, partition: row.partition || null })}>records</a>` },
        ]} />
      <${TableFoot} shown=${data.logs.length} total=${data.total} next=${data.next} what="logs" list=${{ path: 'logs', query: { ...query, limit: 500 }, key: 'logs' }} />`}<//>`;
}
