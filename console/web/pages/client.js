// One client: what it does now, its session and subscriptions, and what happened to it.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, latency, operand, plural, rate, shellWord, short, visible } from '../lib/format.js';
import { Action, Choice } from '../ui/action.js';
import { Chart } from '../ui/chart.js';
import { Command, Empty, Loaded, Name, PageHead, State, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';
import { trouble } from './clients.js';

const KEPT = 300;
const WORDS = /** @type {Record<string, [string, string]>} */ ({ connected: ['good', 'Connected'], disconnected: ['off', 'Disconnected'], watched: ['', 'Packets'], trace: ['', 'Trace'] });

/** Keep what the page has seen of the rates of a client: the server has no history of single clients. @param {any} row @param {number | undefined} now_us */
function useRates(row, now_us) {
  const seen = useRef(/** @type {{us: number, in: number | null, out: number | null}[]} */ ([]));
  const [, turn] = useState(0);
  useEffect(() => {
    if (!row) return;
    seen.current = [...seen.current, { us: Date.now() * 1000, in: row.publishes_in_per_s, out: row.deliveries_out_per_s }].slice(-KEPT);
    turn((n) => n + 1);
  }, [now_us]);
  return seen.current;
}

/** What an event says. @param {any} row */
function sentence(row) {
  const { facts } = row;
  if (row.event === 'connected') return html`from <span class="num">${visible(facts.address ?? '')}</span> over ${facts.transport}, MQTT ${facts.mqtt}${facts.session_resumed ? ', with the session that it had' : ''}`;
  if (row.event === 'disconnected') {
    const { counts = {} } = facts;
    return html`${String(row.reason ?? '').replaceAll('_', ' ')}${facts.connected_us ? ` after ${duration((row.time_us - facts.connected_us) / 1e6)}` : ''}: ${plural(counts.publishes_received ?? 0, 'publish', 'publishes')} in, ${plural(counts.deliveries_sent ?? 0, 'delivery', 'deliveries')} out${counts.publishes_refused ? `, ${count(counts.publishes_refused)} refused` : ''}`;
  }
  if (row.event === 'trace') return html`<${Trace} facts=${facts} />`;
  if (row.event === 'action') return html`<${Audit} facts=${facts} />`;
  if (row.event === 'watched') return html`<${Packets} rows=${facts.packets ?? []} leftOut=${facts.left_out ?? 0} />`;
  return html`${visible(facts.text ?? facts.message ?? row.reason ?? JSON.stringify(facts).slice(0, 300))}`;
}

/** The steps of a sampled batch as bars on one axis of time. @param {{facts: any}} props */
function Trace({ facts }) {
  const spans = /** @type {{name: string, from_us: number, to_us: number}[]} */ (facts.spans ?? []);
  const from = Math.min(...spans.map((one) => one.from_us)), to = Math.max(...spans.map((one) => one.to_us));
  const part = (/** @type {number} */ us) => `${((us / Math.max(1, to - from)) * 100).toFixed(2)}%`;
  return html`${plural(facts.records ?? 0, 'record')} from <a class="num" href=${href('/records', { log: facts.log, partition: facts.partition || null, from: facts.offset, order: 'oldest', at: facts.offset })}>${facts.log}-${facts.partition}, offset ${count(facts.offset)}</a>, ${latency((to - from) / 1e6)} in all
    <dl class="trace">${spans.map((one, index) => html`<div key=${index}><dt>${one.name}</dt><dd class="num">${latency((one.to_us - one.from_us) / 1e6)}</dd><dd class="way" aria-hidden="true"><i style=${{ marginLeft: part(one.from_us - from), width: part(one.to_us - one.from_us) }}></i></dd></div>`)}</dl>`;
}

const ENDS = /** @type {Record<string, [string, string]>} */ ({ begun: ['off', 'begun'], done: ['good', 'done'], failed: ['bad', 'failed'] });

/** Who did what, and how it ended. @param {{facts: any}} props */
function Audit({ facts }) {
  const { by = {} } = facts;
  const [kind, word] = ENDS[facts.state] ?? ['', facts.state];
  const given = Object.entries(facts.arguments ?? {}).filter(([name, value]) => value !== null && name !== 'front');
  return html`<strong class="name">${String(facts.action).replaceAll('_', ' ')}</strong> <${State} kind=${kind}>${word}<//> <span class="break">by ${by.user ? html`<${Name} text=${by.user} />` : by.via === 'command' ? 'a command on the machine' : 'the operator'}${by.via === 'console' ? ' in the console' : ''}${by.address ? ` from ${visible(by.address)}` : ''}</span>
    ${given.length > 0 && html`<div class="small break">${given.map(([name, value], index) => html`${index ? ', ' : ''}${name.replaceAll('_', ' ')} <code>${visible(typeof value === 'string' ? value : JSON.stringify(value))}</code>`)}</div>`}`;
}

/** Packets of a watched client in one second. @param {{rows: any[], leftOut: number}} props */
function Packets({ rows, leftOut }) {
  const kinds = [...new Set(rows.map((one) => `${one.kind} ${one.direction}`))];
  return html`${kinds.map((kind) => `${count(rows.filter((one) => `${one.kind} ${one.direction}` === kind).length)} ${kind}`).join(', ')}${leftOut > 0 ? `, ${count(leftOut)} left out` : ''}
    <details><summary class="small">Each packet</summary><ul class="packets small num">${rows.map((one, index) => html`<li key=${index}><${Time} us=${one.time_us} exact /> ${one.direction === 'in' ? '←' : '→'}<span class="hidden">${one.direction === 'in' ? 'from the client' : 'to the client'}</span> ${one.kind}
      ${one.topic !== undefined && html` <${Name} text=${one.topic} />`}${one.qos !== undefined ? `, QoS ${one.qos}` : ''}${one.payload_bytes !== undefined ? `, ${bytes(one.payload_bytes)}` : ''}${one.retain ? ', retained' : ''}${one.reason ? `, reason 0x${one.reason.toString(16).padStart(2, '0')}` : ''}</li>`)}</ul></details>`;
}

/** Events of the server as a list. @param {{api: any, withClient?: boolean, empty?: any}} props */
export function Timeline({ api, withClient = false, empty }) {
  return html`<${Loaded} api=${api} what="the events">${(/** @type {any} */ data) => (data.events.length === 0 ? empty ?? html`<${Empty} title="No events"><p>The server records connections and their ends while <code>metrics_interval_ms</code> is not 0.</p><//>`
    : html`<ol class="timeline">${data.events.map((/** @type {any} */ row) => html`<li key=${row.offset}><${Time} us=${row.time_us} /><div class="break">${row.event !== 'action' && html`<${State} kind=${WORDS[row.event]?.[0] ?? 'warn'}>${WORDS[row.event]?.[1] ?? row.event}<//>`}
      ${withClient && row.client !== null && html` <a href=${href('/client', { id: row.client })}><${Name} text=${row.client} /></a>`} <span class="muted">${sentence(row)}</span></div></li>`)}</ol>
      ${data.next !== null && html`<p class="table-foot"><a class="button small" href=${changed({ before: data.next })}>Earlier events</a></p>`}`)}<//>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const id = params.get('id') ?? '';
  const api = useApi('client', { id }, { every: 1000 });
  const events = useApi('client/events', { id, before: params.get('before'), limit: 50 }, { every: params.has('before') ? 0 : 5000 });
  const gone = api.error?.status === 404 || api.error?.status === 410;
  const row = gone ? null : api.data?.connection ?? null;
  const rates = useRates(row, row ? row.publishes_received + row.deliveries_sent + row.idle_s + (api.data?.now_us ?? 0) : undefined);
  const store = me.overview.data?.store ?? 'DIR';
  const data = gone ? null : api.data;
  return html`<${PageHead} title=${html`<${Name} text=${id} />`} crumbs=${html`<a href=${href('/clients')}>Clients</a> /`}>${row ? trouble(row) : gone || data ? html`<${State} kind="off">${data?.session?.away_s ? `away for ${duration(data.session.away_s)}` : 'not connected'}<//>` : ''}
      <${Actions} me=${me} id=${id} user=${row ? row.user : events.data?.events[0]?.user ?? null} connected=${Boolean(row)} onDone=${() => { api.again(); events.again(); }} /><//>
    ${gone || api.error?.status === 503 ? html`<p class="lead">${gone ? 'No client with this id is connected now, or has a session.' : 'No server runs, so no client is connected.'} What happened to it before is below.</p>` : html`<${Loaded} api=${api} what="the client">${() => html`
      ${row && html`<dl class="tiles">
        <div class="tile"><dt>Messages in</dt><dd>${rate(row.publishes_in_per_s)}<span class="unit">/s</span></dd><dd class="note">${count(row.publishes_received)} on this connection</dd></div>
        <div class="tile"><dt>Messages out</dt><dd>${rate(row.deliveries_out_per_s)}<span class="unit">/s</span></dd><dd class="note">${count(row.deliveries_sent)} on this connection</dd></div>
        <div class="tile"><dt>Bytes in, out</dt><dd>${bytes(row.bytes_in_per_s)}<span class="unit">/s</span></dd><dd class="note">${bytes(row.bytes_out_per_s)}/s out</dd></div>
        <div class="tile"><dt>Lag</dt><dd>${count(row.lag)}</dd><dd class="note">${row.lag_s ? `${duration(row.lag_s)} old` : 'offsets not sent yet'}</dd></div>
        <div class="tile"><dt>In flight</dt><dd>${count(row.in_flight)}</dd><dd class="note">of ${count(row.in_flight_limit)}, ${bytes(row.unsent_bytes)} unsent</dd></div>
        <div class="tile"><dt>Refused</dt><dd>${count(row.publishes_refused)}</dd><dd class="note">${rate(row.refused_per_s)}/s now</dd></div></dl>`}
      <div class="grid">
        ${row && html`<${Chart} title="Messages a second" times=${rates.map((one) => one.us)} format=${short} series=${[{ label: 'in', values: rates.map((one) => one.in) }, { label: 'out', values: rates.map((one) => one.out) }]} sentence="Since this page was opened." />`}
        ${row && html`<section class="card" aria-labelledby="connection"><header><h2 id="connection">Connection</h2></header><div class="body"><dl class="facts">
          <dt>User</dt><dd><${Name} text=${row.user} /></dd><dt>Address</dt><dd>${row.address}, ${row.transport}, MQTT ${row.mqtt}</dd>
          <dt>Connected</dt><dd><${Time} us=${row.connected_us} />, connection ${row.connection}</dd><dt>Last heard</dt><dd>${duration(row.idle_s)} ago</dd>
          <dt>Waits for the disk</dt><dd>${bytes(row.submitted_bytes)}</dd><dt>Packets in, out</dt><dd>${count(row.packets_received)}, ${count(row.packets_sent)}</dd>
          ${session(data.session)}</dl></div></section>`}
        ${!row && html`<section class="card" aria-labelledby="session"><header><h2 id="session">Its session waits for it</h2></header><div class="body"><dl class="facts">
          <dt>Away</dt><dd>${data.session.away_s === null ? 'since its server was stopped' : `for ${duration(data.session.away_s)}`}</dd>
          ${session(data.session)}<dt>Subscriptions</dt><dd>${count(data.subscription_count)}</dd></dl></div></section>`}</div>
      <${Subscriptions} rows=${data.subscriptions} />`}<//>`}
    <div class="section"><h2>What happened</h2></div><section class="card"><div class="body"><${Timeline} api=${events} /></div></section>
    <div class="section"><h2>Commands</h2></div><dl class="commands"><div><dt>Disconnect it</dt><dd><${Command} text=${`timestone kick ${shellWord(store)} ${operand(id)}`} /></dd></div>
      <div><dt>The same figures</dt><dd><${Command} text=${`timestone clients ${shellWord(store)} --client ${shellWord(id)}`} /></dd></div></dl>`;
}

const WATCHED = /** @type {[any, string][]} */ ([[60, '1 minute'], [600, '10 minutes'], [3600, '1 hour']]);

/** @param {{me: any, id: string, user: string | null, connected: boolean, onDone: () => void}} props */
function Actions({ me, id, user, connected, onDone }) {
  const client = { client: id, user };
  return html`${connected && html`<${Action} me=${me} label="Watch" body=${{ action: 'watch', ...client }} first=${{ duration_s: 600 }} onDone=${onDone}
      arguments=${(/** @type {any} */ values) => ({ duration_s: Number(values.duration_s) })}
      fields=${(/** @type {any} */ values, /** @type {any} */ set) => html`<${Choice} label="For" value=${values.duration_s} options=${WATCHED} onChange=${(/** @type {string} */ one) => set('duration_s', one)} />`} />
    <${Action} me=${me} label="Disconnect" body=${{ action: 'disconnect', ...client }} onDone=${onDone} />`}
    <${Action} me=${me} label="End session" danger body=${{ action: 'end_session', ...client }} onDone=${onDone} />`;
}

/** @param {any} one */
function session(one) {
  if (!one) return '';
  return html`${one.is_connected && html`<dt>Receive maximum</dt><dd>${count(one.receive_maximum)}</dd>`}
    <dt>Session kept</dt><dd>${one.expiry_s === null ? 'without an end' : one.expiry_s ? duration(one.expiry_s) : 'ends with the connection'}</dd>
    ${one.in_flight.length > 0 && html`<dt>In flight</dt><dd>packets ${one.in_flight.slice(0, 30).join(', ')}${one.in_flight.length > 30 ? ' …' : ''}</dd>`}`;
}

/** @param {{rows: any[]}} props */
function Subscriptions({ rows }) {
  if (!rows.length) return null;
  return html`<div class="section"><h2>Subscriptions</h2></div><${Table} caption="Subscriptions" rows=${rows} columns=${[
    { label: 'Filter', heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<${Name} text=${row.filter} clip />` },
    { label: 'QoS', number: true, cell: (/** @type {any} */ row) => row.qos },
    { label: 'Log', cell: (/** @type {any} */ row) => (row.log === null ? '–' : html`<a href=${href('/log', { log: row.log, partition: row.partition || null })}>${row.log}-${row.partition}</a>`) },
    { label: 'Next offset', number: true, priority: 2, cell: (/** @type {any} */ row) => count(row.offset) },
    { label: 'Acknowledged', number: true, priority: 3, cell: (/** @type {any} */ row) => count(row.committed_offset) },
    { label: 'Lag, records', number: true, cell: (/** @type {any} */ row) => count(row.lag) },
    { label: 'Lag in time', number: true, priority: 2, cell: (/** @type {any} */ row) => duration(row.lag_s) },
  ]} />`;
}
