// Readers: consumers, Spark queries and shared subscriptions; how far each is behind, since when, and until when.
import { html, useState } from '../lib/html.js';
import { get, useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, rate, shellWord, short, time } from '../lib/format.js';
import { Chart, newest } from '../ui/chart.js';
import { Command, Empty, Loaded, Name, PageHead, State, Time } from '../ui/parts.js';
import { Search, Table, TableFoot } from '../ui/table.js';
import { Action, mayAct } from '../ui/action.js';
import { SpanChoice, seriesSpan, useSpan, zoom } from './overview.js';

const KINDS = /** @type {Record<string, string>} */ ({ shared: 'shared subscription', reader: 'reader', server: 'server' });

const KEEPS_UP_S = 5;

/** Return whether a reader reads what comes: a lag of a moment is one batch and no trend. @param {any} row */
const keepsUp = (row) => !row.place.lag || (row.place.lag_s !== null && row.place.lag_s < KEEPS_UP_S);

/** Cell: since when a reader is behind. @param {any} row */
export function sinceWhen(row) {
  if (keepsUp(row)) return html`<${State} kind="good">${row.place.lag ? 'keeps up' : 'caught up'}<//>`;
  return row.behind_since_us ? html`<${Time} us=${row.behind_since_us} />` : html`<span class="muted">unknown</span>`;
}

/** Cell: when a reader will have caught up at the rate of the last ten minutes. @param {any} row */
export function catchUp(row) {
  if (keepsUp(row)) return html`<span class="muted">–</span>`;
  if (row.catch_up_s !== null) return html`<span class="num" title=${`at ${time(Date.now() * 1000 + row.catch_up_s * 1e6)}`}>in ${duration(row.catch_up_s)}</span>`;
  if (row.trend_per_s === null) return html`<span class="muted">unknown yet</span>`;
  return row.trend_per_s > 0 ? html`<${State} kind="bad">falls behind<//>` : html`<${State} kind="warn">stands still<//>`;
}

/** Sentence about a reader. @param {any} row @param {number} now_us */
function story(row, now_us) {
  const { place } = row;
  if (!place.lag) return 'It has read everything.';
  if (keepsUp(row)) return `It keeps up: it is ${count(place.lag)} records behind, the oldest ${duration(place.lag_s)} old.`;
  const parts = [`It is ${count(place.lag)} records behind${place.lag_s === null ? '' : `; the oldest that it has not read is ${duration(place.lag_s)} old`}.`];
  if (row.behind_since_us) parts.push(`It has been falling behind since ${time(row.behind_since_us)}, for ${duration((now_us - row.behind_since_us) / 1e6)}.`);
  if (row.catch_up_s !== null) parts.push(`At the rate of the last ten minutes it will have caught up in ${duration(row.catch_up_s)}, at ${time(now_us + row.catch_up_s * 1e6)}.`);
  else if (row.trend_per_s > 0) parts.push(`It will not catch up: its lag grows by ${rate(row.trend_per_s)} records a second.`);
  else if (row.trend_per_s === 0) parts.push('It will not catch up: its lag does not change.');
  else parts.push('There are too few samples yet to say when it will have caught up.');
  return parts.join(' ');
}

/** @param {{row: any, me: any, onDone: () => void}} props */
function Actions({ row, me, onDone }) {
  if (!mayAct(me)) return null;
  const { place } = row;
  const reader = { log: place.log, partition: place.partition, name: place.name };
  return html`<div class="bar actions"><${Action} me=${me} small label="Move" body=${{ action: 'move', ...reader }} first=${{ offset: String(place.offset) }} onDone=${onDone}
      arguments=${(/** @type {any} */ values) => (/^\d+$/.test(values.offset) ? { offset: Number(values.offset) } : null)}
      fields=${(/** @type {any} */ values, /** @type {any} */ set) => html`<${Place} log=${place.log} partition=${place.partition} value=${values.offset} onChange=${(/** @type {string} */ one) => set('offset', one)} />`} />
    ${row.pin && html`<${Action} me=${me} small label="Release pin" body=${{ action: 'release', ...reader }} onDone=${onDone} />`}
    <${Action} me=${me} small danger label="Forget" body=${{ action: 'forget', ...reader }} onDone=${onDone} /></div>`;
}

/** An offset, or the time whose offset it is. @param {{log: string, partition: number, value: string, onChange: (offset: string) => void}} props */
function Place({ log, partition, value, onChange }) {
  const [problem, setProblem] = useState('');
  const find = async (/** @type {any} */ event) => {
    const at = new Date(event.target.value).getTime();
    if (Number.isNaN(at)) return;
    try { onChange(String((await get(`logs/${log}/offset`, { partition, time: at * 1000 })).offset)); setProblem(''); } catch (error) { setProblem(/** @type {any} */ (error).message); }
  };
  return html`<div class="row"><label>Offset<input class="input" inputmode="numeric" autofocus value=${value} onInput=${(/** @type {any} */ event) => onChange(event.target.value.replaceAll(',', ''))} /></label>
    <label>or that of a time<input class="input" type="datetime-local" step="1" onChange=${find} /></label></div>${problem && html`<p role="alert">${problem}</p>`}`;
}

/** @param {{row: any, me: any, onDone: () => void}} props */
function Detail({ row, me, onDone }) {
  const span = useSpan();
  const { place } = row;
  const log = `timestone_log_end_offset{log="${place.log}",partition="${place.partition}"}`;
  const query = new URLSearchParams([['name', row.series], ['name', log.replace('_end_offset', '_appended_records_total')]]);
  for (const [key, value] of Object.entries(seriesSpan(span))) query.set(key, String(value));
  const api = useApi(`series?${query}`, {}, { every: span.every });
  const store = me.overview.data?.store ?? 'DIR';
  const named = `${place.log}-${place.partition}`;
  return html`<section class="card" aria-labelledby="reader"><header><h2 id="reader"><${Name} text=${place.name} /></h2><span class="muted">${KINDS[row.kind] ?? row.kind} of <a href=${href('/log', { log: place.log, partition: place.partition || null })}>${named}</a></span>
      <span class="grow"></span><a href=${changed({ name: null, log: null, partition: null })}>Close</a></header>
    <div class="body"><p>${story(row, Date.now() * 1000)}</p><${Actions} row=${row} me=${me} onDone=${onDone} /></div></section>
    <div class="bar"><span class="grow"></span><${SpanChoice} /></div>
    <${Loaded} api=${api} what="the history of this reader">${(/** @type {any} */ data) => html`<div class="grid">
      <${Chart} tall title="Lag in records" times=${data.times_us} marks=${data.starts_us} from=${data.from_us} to=${data.to_us} onZoom=${zoom} format=${short}
        series=${[{ label: 'lag', values: data.series[0].values }]} sentence=${data.series[0].most === null ? 'No samples in this span.' : `now ${count(newest(data.series[0].values))}, highest ${count(data.series[0].most)} at ${time(data.series[0].most_us)}`} />
      <${Chart} tall title="Records appended a second" times=${data.times_us} marks=${data.starts_us} from=${data.from_us} to=${data.to_us} onZoom=${zoom} format=${short}
        series=${[{ label: named, values: data.series[1].values }]} sentence=${data.series[1].most === null ? 'No samples in this span.' : `mean ${rate(data.series[1].mean)}, highest ${rate(data.series[1].most)} at ${time(data.series[1].most_us)}`} /></div>`}<//>
    <div class="grid"><section class="card"><div class="body"><dl class="facts">
      <dt>Next offset</dt><dd><a href=${href('/records', { log: place.log, partition: place.partition || null, from: place.offset })}>${count(place.offset)}</a></dd>
      <dt>End of the log</dt><dd>${count(place.end_offset)}</dd>
      <dt>Missed</dt><dd>${place.missed ? html`<${State} kind="bad">${count(place.missed)} records were deleted before it read them<//>` : 'nothing'}</dd>
      <dt>Last commit</dt><dd><${Time} us=${place.committed_us} /></dd>
      <dt>Pin</dt><dd>${row.pin ? `retention waits for it, with at most ${[row.pin.max_age_ms && duration(row.pin.max_age_ms / 1000), row.pin.max_bytes && bytes(row.pin.max_bytes)].filter(Boolean).join(' or ') || 'no limit'}; it holds ${bytes(row.pin.held_bytes)}` : 'none'}</dd></dl></div></section>
      <section class="card"><div class="body"><dl class="commands">
        <div><dt>The records that it reads next</dt><dd><${Command} text=${`timestone read ${shellWord(store)} ${shellWord(place.log)}${place.partition ? ` --partition ${place.partition}` : ''} --from offset:${place.offset} --count 10`} /></dd></div>
        <div><dt>Let retention delete what it pins</dt><dd><${Command} text=${`timestone readers ${shellWord(store)} --release ${shellWord(place.name)} --log ${shellWord(named)}`} /></dd></div>
        <div><dt>Forget it</dt><dd><${Command} text=${`timestone readers ${shellWord(store)} --forget ${shellWord(place.name)} --log ${shellWord(named)}`} /></dd></div></dl></div></section></div>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const sort = params.get('sort') ?? 'lag';
  const query = { sort, text: params.get('search'), after: params.get('after') };
  const api = useApi('readers', { ...query, limit: 100 }, { every: 2000 });
  const name = params.get('name'), log = params.get('log'), partition = Number(params.get('partition') ?? 0);
  const one = useApi(name === null ? null : 'readers', { text: (name ?? '').slice(0, 512), log, limit: 100 }, { every: 2000 });
  const chosen = name === null ? null : one.data?.readers.find((/** @type {any} */ row) => row.place.name === name && row.place.log === log && row.place.partition === partition);
  return html`<${PageHead} title="Readers" />
    ${name !== null && (chosen ? html`<${Detail} row=${chosen} me=${me} key=${chosen.series} onDone=${() => { one.again(); api.again(); }} />` : one.data && html`<div class="card"><${Empty} title="No such reader"><p>It was forgotten, or it has not committed an offset yet.</p><//></div>`)}
    <div class="bar"><${Search} label="Search readers" placeholder="Part of a name" /></div>
    <${Loaded} api=${api} what="the readers">${(/** @type {any} */ data) => html`
      <${Table} caption="Readers" rows=${data.readers} busy=${api.busy} sort=${sort === 'name' || sort === 'committed' ? sort : `-${sort}`} keyOf=${(/** @type {any} */ row) => row.series}
        empty=${html`<${Empty} title=${query.text ? 'No reader matches' : 'No readers yet'}><p>A reader appears with its first commit: a Spark query with a group, a shared subscription, or <code>Log.reader(name=…)</code>.</p><//>`}
        columns=${[
          { label: 'Reader', sort: 'name', up: true, heading: true, className: 'name', cell: (/** @type {any} */ row) => html`<a href=${changed({ name: row.place.name, log: row.place.log, partition: row.place.partition || null })}><${Name} text=${row.place.name} clip /></a>` },
          { label: 'Kind', priority: 3, cell: (/** @type {any} */ row) => KINDS[row.kind] ?? row.kind },
          { label: 'Log', priority: 2, cell: (/** @type {any} */ row) => html`<a href=${href('/log', { log: row.place.log, partition: row.place.partition || null })}>${row.place.log}-${row.place.partition}</a>` },
          { label: 'Lag, records', sort: 'lag', number: true, cell: (/** @type {any} */ row) => count(row.place.lag) },
          { label: 'Lag in time', sort: 'lag_s', number: true, priority: 1, cell: (/** @type {any} */ row) => (row.place.lag ? duration(row.place.lag_s) : '0 s') },
          { label: 'Trend /s', number: true, priority: 3, cell: (/** @type {any} */ row) => (row.trend_per_s === null ? '–' : `${row.trend_per_s > 0 ? '+' : row.trend_per_s < 0 ? '−' : ''}${rate(Math.abs(row.trend_per_s))}`) },
          { label: 'Behind since', cell: sinceWhen },
          { label: 'Caught up', cell: catchUp },
          { label: 'Missed', number: true, priority: 2, cell: (/** @type {any} */ row) => (row.place.missed ? html`<${State} kind="bad">${count(row.place.missed)}<//>` : '0') },
          { label: 'Last commit', sort: 'committed', up: true, priority: 3, cell: (/** @type {any} */ row) => html`<${Time} us=${row.place.committed_us} />` },
        ]} />
      <${TableFoot} shown=${data.readers.length} total=${data.total} next=${data.next} what="readers" list=${{ path: 'readers', query: { ...query, limit: 500 }, key: 'readers' }} />`}<//>`;
}
