// Overview: what the server does now, what is wrong, who is busiest, who is behind; and the figures of any span.
import { html, useEffect, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, go, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, latency, rate, share, short, time, visible } from '../lib/format.js';
import { Chart, newest } from '../ui/chart.js';
import { Loaded, Meter, Name, PageHead, Segmented, State, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';
import { keyOf } from './pipeline.js';
import { catchUp, sinceWhen } from './readers.js';

export const SPANS = /** @type {[string, number, string][]} */ ([['15m', 900, '15 min'], ['1h', 3600, '1 h'], ['6h', 21600, '6 h'], ['1d', 86400, '24 h'], ['7d', 604800, '7 d'], ['30d', 2592000, '30 d']]);
const ACKNOWLEDGE = 'timestone_mqtt_acknowledge_seconds';
const FLUSH = 'timestone_store_flush_seconds';
const DELIVER = 'timestone_mqtt_deliver_seconds';
const NAMES = [
  'timestone_mqtt_publishes_received_total', 'timestone_mqtt_deliveries_sent_total',
  'timestone_mqtt_bytes_received_total', 'timestone_mqtt_bytes_sent_total', 'timestone_mqtt_sessions_connected',
  ...[ACKNOWLEDGE, FLUSH, DELIVER].flatMap((name) => [`${name}:p50`, `${name}:p99`, `${name}:p100`]),
];

/** Follow the span of the URL: a length up to now, or two times. */
export function useSpan() {
  const { params } = useRoute();
  const from = Number(params.get('from')) || null, to = Number(params.get('to')) || null;
  if (from && to) return { from, to, word: '', query: { from, to }, every: 0 };
  const [word, seconds] = SPANS.find(([name]) => name === params.get('span')) ?? SPANS[1];
  return { from: null, to: null, word, seconds, query: { span_s: seconds }, every: Math.max(5000, seconds * 10) };
}

/** Choice of the span. */
export function SpanChoice() {
  const span = useSpan();
  const options = SPANS.map(([name, , text]) => /** @type {[string, string, boolean]} */ ([text, changed({ span: name === '1h' ? null : name, from: null, to: null }), span.word === name]));
  if (span.from && span.to) options.push([`${time(span.from)} – ${time(span.to)}`, changed({}), true]);
  return html`<${Segmented} label="Span of the charts" options=${options} />`;
}

/** Zoom all charts of the page. @param {number} from @param {number} to */
export const zoom = (from, to) => go(changed({ from, to, span: null }));

/** Sentence of a series: mean and peak. @param {any} data @param {number} index @param {(n: any) => string} format @param {string} word */
function sentenceOf(data, index, format, word) {
  const one = data.series[index];
  if (!one || one.most === null) return 'No figures in this span.';
  return `${word} ${format(newest(one.values))}, mean ${format(one.mean)}, highest ${format(one.most)} at ${time(one.most_us)}`;
}

function Charts() {
  const span = useSpan();
  const query = new URLSearchParams(NAMES.map((name) => ['name', name]));
  for (const [key, value] of Object.entries(seriesSpan(span))) query.set(key, String(value));
  const api = useApi(`series?${query}`, {}, { every: span.every });
  return html`<section aria-label="Charts"><${Loaded} api=${api} what="the charts">${(/** @type {any} */ data) => {
    const times = data.times_us;
    const values = (/** @type {number} */ index) => data.series[index].values;
    const common = { times, marks: data.starts_us, from: data.from_us, to: data.to_us, onZoom: zoom };
    const delays = (/** @type {string} */ title, /** @type {number} */ at) => html`<${Chart} ...${common} title=${title} format=${latency}
      series=${[{ label: 'p50', values: values(at) }, { label: 'p99', values: values(at + 1) }, { label: 'longest', values: values(at + 2) }]}
      sentence=${sentenceOf(data, at + 1, latency, 'p99')} />`;
    return html`<div class="grid">
      <${Chart} ...${common} title="Messages a second" format=${short} series=${[{ label: 'in', values: values(0) }, { label: 'out', values: values(1) }]} sentence=${sentenceOf(data, 0, short, 'in')} />
      ${delays('Acknowledgement', 5)}
      <${Chart} ...${common} title="Bytes a second" binary format=${bytes} series=${[{ label: 'in', values: values(2) }, { label: 'out', values: values(3) }]} sentence=${sentenceOf(data, 2, bytes, 'in')} />
      ${delays('Delivery', 11)}
      <${Chart} ...${common} title="Clients connected" format=${short} series=${[{ label: 'connected', values: values(4) }]} sentence=${sentenceOf(data, 4, count, 'now')} />
      ${delays('Flush to the disk', 8)}
    </div>`;
  }}<//></section>`;
}

/** Parameters of the API for a span; rounded, so that the same chart has the same URL for a while. @param {any} span */
export function seriesSpan(span) {
  if (span.from) return { from: span.from, to: span.to };
  const to = Math.floor(Date.now() / 1000) * 1_000_000;
  const step = span.every * 1000;
  const end = Math.ceil(to / step) * step;
  return { from: end - span.seconds * 1_000_000, points: 240 };
}

/** Return the p99 of a latency as the bound of its bucket. @param {any} one */
const atMost = (one) => (one && one.p99_s !== null ? `≤ ${latency(one.p99_s)}` : '–');

/** @param {{data: any, figures: any}} props */
function Tiles({ data, figures }) {
  const { clients, latencies, disk, furthest_behind: behind } = data;
  const rates = figures?.live ?? data.live ?? data.rates;
  const ack = latencies.acknowledge;
  const full = disk.full_in_s;
  const used = disk.total_bytes - disk.free_bytes;
  return html`<dl class="tiles eight">
    <div class="tile"><dt>Messages in</dt><dd>${rate(rates.publishes_per_s)}<span class="unit">/s</span></dd><dd class="note">${bytes(rates.bytes_in_per_s)}/s</dd></div>
    <div class="tile"><dt>Messages out</dt><dd>${rate(rates.deliveries_per_s)}<span class="unit">/s</span></dd><dd class="note">${bytes(rates.bytes_out_per_s)}/s</dd></div>
    <div class="tile"><dt>Clients</dt><dd>${count(rates.connected ?? clients.connected)}</dd><dd class="note"><a href=${href('/clients', { trouble: 'away' })}>${count(clients.away)} away</a>, ${count(clients.refused_total)} refused</dd></div>
    <div class="tile"><dt>Acknowledgement p99</dt><dd>${atMost(ack)}</dd><dd class="note">${ack && ack.count ? `p50 ≤ ${latency(ack.p50_s)}, longest ≤ ${latency(ack.max_s)}` : 'none in the last minute'}</dd></div>
    <div class="tile"><dt>Flush p99</dt><dd>${atMost(latencies.flush)}</dd><dd class="note">${bytes(clients.submitted_bytes)} wait for the disk</dd></div>
    <div class="tile"><dt>Delivery p99</dt><dd>${atMost(latencies.deliver)}</dd><dd class="note">${bytes(clients.unsent_bytes)} unsent</dd></div>
    <div class="tile"><dt>Furthest behind</dt><dd>${behind ? (behind.lag_s === null ? count(behind.lag) : duration(behind.lag_s)) : '0 s'}</dd>
      <dd class="note">${behind ? html`<a class="clip" href=${href('/readers', { name: behind.name, log: behind.log, partition: behind.partition || null })}><${Name} text=${behind.name} clip /></a>` : 'all readers have read everything'}</dd></div>
    <div class="tile"><dt>Disk full</dt><dd>${full === null || full === undefined ? 'not filling' : full > 3.2e8 ? '> 10 years' : `in ${duration(full)}`}</dd>
      <dd class="note"><${Meter} part=${disk.total_bytes ? used / disk.total_bytes : 0} />${bytes(disk.free_bytes)} free</dd></div>
  </dl>`;
}

/** @param {{wrong: any[]}} props */
function Problems({ wrong }) {
  if (!wrong.length) return html`<section class="card" aria-label="What is wrong now"><div class="body"><${State} kind="good">Nothing is wrong now.<//></div></section>`;
  return html`<section class="card" aria-labelledby="wrong"><header><h2 id="wrong">Wrong now</h2></header><div class="body"><ul class="problems">${wrong.map((/** @type {any} */ one) => html`
    <li key=${one.name + one.text}><${State} kind=${one.severity === 'critical' ? 'bad' : 'warn'}>${one.severity}<//><span class="break">${visible(one.text)}</span>
    <span class="muted">${one.since_us ? html`since <${Time} us=${one.since_us} />` : ''} ${one.log === null ? html`<a href=${href('/alerts')}>what to do</a>` : html`<a href=${href('/log', { log: one.log, partition: one.partition || null })}>its segments</a>`}</span></li>`)}</ul></div></section>`;
}

/** @param {{all: number | null, running: boolean}} props */
function Busiest({ all, running }) {
  // A rate needs two looks: the second one soon.
  const [every, setEvery] = useState(1100);
  const api = useApi(running ? 'clients' : null, { sort: 'publishes_in_per_s', limit: 5 }, { every });
  const isKnown = api.data?.clients.every((/** @type {any} */ row) => row.publishes_in_per_s !== null) ?? false;
  useEffect(() => setEvery(isKnown ? 2000 : 1100), [isKnown]);
  const rows = api.data?.clients ?? [];
  const whole = Math.max(all ?? 0, rows.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + (row.publishes_in_per_s ?? 0), 0));
  const part = (/** @type {any} */ row) => (whole ? (row.publishes_in_per_s ?? 0) / whole : 0);
  return html`<section class="card" aria-labelledby="busiest"><header><h2 id="busiest">Busiest clients</h2><span class="grow"></span><a href=${href('/clients', { sort: '-publishes_in_per_s' })}>All clients</a></header>
    ${!running ? html`<div class="empty">No server runs, so no client is connected.</div>` : html`<${Loaded} api=${api} what="clients">${() => html`<${Table} caption="Busiest clients" rows=${rows} keyOf=${(/** @type {any} */ row) => row.connection}
      empty=${html`<div class="empty">No client is connected.</div>`} columns=${[
        { label: 'Client', heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<a href=${href('/client', { id: row.client })}><${Name} text=${row.client} clip /></a>` },
        { label: 'In /s', number: true, cell: (/** @type {any} */ row) => rate(row.publishes_in_per_s) },
        { label: 'Share of all', number: true, cell: (/** @type {any} */ row) => html`<${Meter} part=${part(row)} />${row.publishes_in_per_s === null ? '–' : share(part(row))}` },
        { label: 'Bytes in /s', number: true, priority: 2, cell: (/** @type {any} */ row) => bytes(row.bytes_in_per_s) },
      ]} />`}<//>`}</section>`;
}

function Behind() {
  const api = useApi('readers', { sort: 'lag', limit: 10 }, { every: 2000 });
  return html`<section class="card" aria-labelledby="behind"><header><h2 id="behind">Readers furthest behind</h2><span class="grow"></span><a href=${href('/readers')}>All readers</a></header>
    <${Loaded} api=${api} what="readers">${(/** @type {any} */ data) => html`<${Table} caption="Readers furthest behind" rows=${data.readers.filter((/** @type {any} */ row) => row.kind !== 'server').slice(0, 5)} keyOf=${(/** @type {any} */ row) => row.series}
      empty=${html`<div class="empty">No reader has committed an offset yet.</div>`} columns=${[
        { label: 'Reader', heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<a href=${href('/readers', { name: row.place.name, log: row.place.log, partition: row.place.partition || null })}><${Name} text=${row.place.name} clip /></a>` },
        { label: 'Lag, records', number: true, cell: (/** @type {any} */ row) => count(row.place.lag) },
        { label: 'Behind since', cell: sinceWhen },
        { label: 'Caught up', cell: catchUp },
      ]} />`}<//></section>`;
}

function DeadLetters() {
  const api = useApi('pipeline/dead-letters', { limit: 3 }, { every: 15_000 });
  const total = Object.values(api.data?.reasons ?? {}).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one, 0);
  return html`<section class="card" aria-labelledby="dead"><header><h2 id="dead">Dead letters of the pipeline</h2>${total > 0 && html`<span class="muted small">${count(total)} messages that could not be parsed</span>`}<span class="grow"></span><a href=${href('/pipeline')}>All dead letters</a></header>
    <${Loaded} api=${api} what="the dead letters">${(/** @type {any} */ data) => html`<${Table} caption="Newest dead letters" rows=${data.letters} keyOf=${keyOf}
      empty=${html`<div class="empty">Every message so far was valid.</div>`} columns=${[
        { label: 'Received', heading: true, cell: (/** @type {any} */ row) => html`<a href=${href('/pipeline', { letter: keyOf(row) })}><${Time} us=${row.received_us} exact /></a>` },
        { label: 'Reason', className: 'wide', cell: (/** @type {any} */ row) => visible(row.reason) },
        { label: 'Topic', className: 'name', priority: 2, cell: (/** @type {any} */ row) => html`<${Name} text=${row.topic} clip />` },
      ]} />`}<//></section>`;
}

/** @param {{data: any}} props */
function Horizons({ data }) {
  if (!data.horizons.length) return null;
  return html`<section class="card" aria-labelledby="horizons"><header><h2 id="horizons">Oldest record of each log</h2><span class="grow"></span><a href=${href('/logs')}>All logs</a></header>
    <${Table} caption="Oldest record of each log" rows=${data.horizons.slice(0, 8)} keyOf=${(/** @type {any} */ row) => `${row.log}-${row.partition}`} columns=${[
      { label: 'Log', heading: true, cell: (/** @type {any} */ row) => html`<a href=${href('/log', { log: row.log, partition: row.partition || null })}>${row.log}-${row.partition}</a>` },
      { label: 'Oldest', cell: (/** @type {any} */ row) => html`<${Time} us=${row.oldest_us} />` },
      { label: 'Kept', number: true, cell: (/** @type {any} */ row) => (row.oldest_us ? duration((data.now_us - row.oldest_us) / 1e6) : '–') },
      { label: 'Records', number: true, cell: (/** @type {any} */ row) => count(row.end_offset - row.start_offset) },
    ]} /></section>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const api = me.overview;
  // The stream says it first.
  const server = me.stream.figures?.server ?? api.data?.server;
  return html`<${PageHead} title="Overview"><${SpanChoice} /><//>
    <${Loaded} api=${api} what="the overview">${(/** @type {any} */ data) => html`
      <div class="grid wide"><${Problems} wrong=${data.wrong} /></div>
      <${Tiles} data=${data} figures=${me.stream.figures} />`}<//>
    <div class="grid">${server && html`<${Busiest} running=${server.state === 'running'} all=${(me.stream.figures?.live ?? api.data?.live ?? api.data?.rates)?.publishes_per_s ?? null} />`}<${Behind} /></div>
    <${Charts} />
    ${api.data && html`<div class="grid"><${Horizons} data=${api.data} />${me.has_pipeline && html`<${DeadLetters} />`}</div>`}`;
}
