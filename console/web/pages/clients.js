// Connected clients: searched, sorted and paged by the console's process, never by the server.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, rate } from '../lib/format.js';
import { Empty, Loaded, Name, PageHead, Segmented, State, Time } from '../ui/parts.js';
import { Search, Table, TableFoot } from '../ui/table.js';

/** Filters of trouble: word in the URL, text, parameters of the API. @type {[string, string, Record<string, any>][]} */
const TROUBLE = [['', 'All', {}], ['held', 'Held back', { held: true }], ['refused', 'Over a limit', { refused: true }], ['lag', 'Behind', { lag_above: 100 }], ['silent', 'Silent for a minute', { silent_for: 60 }]];
const HELD = /** @type {Record<string, string>} */ ({ undecided: 'its login is being checked', unsettled: 'waits for the disk', unread: 'does not read its answers' });

/** Cell: what is wrong with a client, in words. @param {any} row */
export function trouble(row) {
  if (row.held.length) return html`<${State} kind="bad">held: ${row.held.map((/** @type {string} */ one) => HELD[one] ?? one).join(', ')}<//>`;
  if (row.refused_per_s > 0) return html`<${State} kind="bad">over a limit<//>`;
  if (row.unsent_bytes > 65536) return html`<${State} kind="warn">does not keep up<//>`;
  if (row.idle_s >= 60) return html`<${State} kind="off">silent for ${duration(row.idle_s)}<//>`;
  return html`<${State} kind="good">fine<//>`;
}

/** Sessions without a connection, by client id, from the files of the store. @param {{kinds: any}} props */
function Away({ kinds }) {
  const { params } = useRoute();
  const query = { text: params.get('search'), after: params.get('after') };
  const api = useApi('sessions', { ...query, limit: 50 }, { every: 5000 });
  return html`<${PageHead} title="Clients" />
    <div class="bar"><${Search} label="Search sessions" placeholder="Part of a client id or user" />${kinds}</div>
    <${Loaded} api=${api} what="the sessions">${(/** @type {any} */ data) => html`
      <${Table} caption="Sessions of clients that are away" rows=${data.sessions} busy=${api.busy} keyOf=${(/** @type {any} */ row) => JSON.stringify([row.client, row.user])}
        empty=${html`<${Empty} title=${query.text ? 'No session matches' : 'No client is away'}><p>${data.is_complete ? html`The session of a client that disconnects is kept if it asks for that, for example with <code>timestone sub -i display -c -q 1</code>.` : 'The search took two seconds. The next page continues it.'}</p><//>`}
        columns=${[
          { label: 'Client', heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<a href=${href('/client', { id: row.client })}><${Name} text=${row.client} clip /></a>` },
          { label: 'User', priority: 2, className: 'name', cell: (/** @type {any} */ row) => html`<${Name} text=${row.user} />` },
          { label: 'Away for', number: true, cell: (/** @type {any} */ row) => (row.away_s === null ? 'until the last stop' : duration(row.away_s)) },
          { label: 'Session ends in', number: true, cell: (/** @type {any} */ row) => (row.expires_s === null ? 'never' : duration(row.expires_s)) },
          { label: 'Subscriptions', number: true, priority: 2, cell: (/** @type {any} */ row) => count(row.subscriptions) },
          { label: 'Lag, records', number: true, cell: (/** @type {any} */ row) => count(row.lag) },
          { label: 'In flight', number: true, priority: 3, cell: (/** @type {any} */ row) => count(row.in_flight) },
          { label: 'Size', number: true, priority: 3, cell: (/** @type {any} */ row) => bytes(row.size_bytes) },
        ]} />
      <${TableFoot} shown=${data.sessions.length} next=${data.next} what="sessions" list=${{ path: 'sessions', query: { ...query, limit: 500 }, key: 'sessions' }} />`}<//>`;
}

export function Page() {
  const { params } = useRoute();
  const word = params.get('trouble') ?? '';
  const kinds = html`<${Segmented} label="Which clients" options=${[...TROUBLE, ['away', 'Away']].map(([one, text]) => [text, changed({ trouble: one || null, after: null, ...(one === 'away' || word === 'away' ? { sort: null } : {}) }), one === word])} />`;
  return word === 'away' ? html`<${Away} kinds=${kinds} />` : html`<${Connected} kinds=${kinds} />`;
}

/** @param {{kinds: any}} props */
function Connected({ kinds }) {
  const { params } = useRoute();
  const sort = params.get('sort') ?? '-messages';
  const kind = TROUBLE.find(([word]) => word === (params.get('trouble') ?? '')) ?? TROUBLE[0];
  const query = { text: params.get('search'), after: params.get('after'), sort: sort.replace('-', ''), descending: sort.startsWith('-') ? null : 'false', ...kind[2] };
  const api = useApi('clients', { ...query, limit: 50 }, { every: 2000 });
  const n = (/** @type {string} */ label, /** @type {string} */ key, /** @type {(value: any) => any} */ format, /** @type {any} */ more = {}) => ({ label, sort: key, number: true, cell: (/** @type {any} */ row) => format(row[key]), ...more });
  return html`<${PageHead} title="Clients" />
    <div class="bar"><${Search} label="Search clients" placeholder="Part of a client id, user or address" />${kinds}</div>
    <${Loaded} api=${api} what="the clients">${(/** @type {any} */ data) => html`
      <${Table} caption="Connected clients" rows=${data.clients} busy=${api.busy} sort=${sort} keyOf=${(/** @type {any} */ row) => `${row.front}-${row.connection}`}
        empty=${html`<${Empty} title=${data.total ? 'No client matches' : 'No client is connected'}>${data.total ? html`<p>${count(data.total)} are connected.</p>` : html`<p>A client appears as soon as it connects, for example with <code>timestone sub -t '#'</code>.</p>`}<//>`}
        columns=${[
          { label: 'Client', sort: 'client', up: true, heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<a href=${href('/client', { id: row.client })}><${Name} text=${row.client} clip /></a>` },
          { label: 'State', cell: trouble },
          n('In /s', 'publishes_in_per_s', rate),
          n('Out /s', 'deliveries_out_per_s', rate),
          n('Bytes in /s', 'bytes_in_per_s', bytes, { priority: 2 }),
          n('Bytes out /s', 'bytes_out_per_s', bytes, { priority: 3 }),
          n('Lag, records', 'lag', count, { priority: 2 }),
          n('Unsent', 'unsent_bytes', bytes, { priority: 3 }),
          n('Refused', 'publishes_refused', count, { priority: 2 }),
          { label: 'User and address', priority: 2, className: 'name', cell: (/** @type {any} */ row) => html`<span class="nowrap num">${row.user === null ? '' : html`<${Name} text=${row.user} /> `}${row.address}</span>` },
          { label: 'Connected', sort: 'connected_us', priority: 3, cell: (/** @type {any} */ row) => html`<${Time} us=${row.connected_us} />` },
        ]} />
      <${TableFoot} shown=${data.clients.length} total=${data.matched} next=${data.next} what=${data.matched === data.total ? 'clients' : `matching of ${count(data.total)} clients`} list=${{ path: 'clients', query: { ...query, limit: 500 }, key: 'clients' }} />`}<//>`;
}
