// One log: its sizes and settings, the map of its segments, and offsets by time.
import { html, useEffect, useState } from '../lib/html.js';
import { get, url, useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, plural, rate, shellWord, short, time, visible } from '../lib/format.js';
import { Chart } from '../ui/chart.js';
import { Banner, Command, Loaded, PageHead, State, Time } from '../ui/parts.js';
import { Action, Choice } from '../ui/action.js';
import { SegmentMap, stateOf } from '../ui/segment_map.js';
import { Table } from '../ui/table.js';
import { SpanChoice, seriesSpan, useSpan, zoom } from './overview.js';

const BAD = ['torn', 'damaged', 'orphan'];
const ROWS = 10;

/** A time as an offset and an offset as a time. @param {{log: string, partition: number, from: number}} props */
function Place({ log, partition, from }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const ask = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const at = String(form.get('time') ?? ''), offset = String(form.get('offset') ?? '').replaceAll(',', '');
    const query = at ? { time: new Date(at).getTime() * 1000 } : { offset: offset || from };
    try { setFound(await get(`logs/${log}/offset`, { partition, ...query })); setProblem(''); } catch (error) { setFound(null); setProblem(/** @type {any} */ (error).message); }
  };
  return html`<section class="card" aria-labelledby="place"><header><h2 id="place">Time and offset</h2></header><div class="body">
    <form class="bar" onSubmit=${ask}><label class="field">Time <input class="input" type="datetime-local" step="1" name="time" /></label>
      <label class="field">or offset <input class="input" inputmode="numeric" pattern="[0-9,]*" name="offset" size="7" /></label><button class="button">Find</button></form>
    <p role="status">${problem || (found ? html`Offset <a href=${href('/records', { log, partition: partition || null, from: found.offset })}>${count(found.offset)}</a>${found.timestamp_us ? html`, appended at <${Time} us=${found.timestamp_us} exact />` : ', the end of the log'}` : html`<span class="muted">Which record came at a time, and when came a record.</span>`)}</p></div></section>`;
}

/** @param {{log: string, partition: number}} props */
function Traffic({ log, partition }) {
  const span = useSpan();
  const labels = `{log="${log}",partition="${partition}"}`;
  const query = new URLSearchParams([['name', `timestone_log_appended_records_total${labels}`], ['name', `timestone_log_appended_bytes_total${labels}`]]);
  for (const [key, value] of Object.entries(seriesSpan(span))) query.set(key, String(value));
  const api = useApi(`series?${query}`, {}, { every: span.every });
  return html`<div class="section"><h2>Traffic</h2><span class="grow"></span><${SpanChoice} /></div><${Loaded} api=${api} what="the traffic">${(/** @type {any} */ data) => html`<div class="grid">${[['Records a second', short], ['Bytes a second', bytes]].map(([title, format], index) => {
    const one = data.series[index];
    return html`<${Chart} key=${title} title=${title} times=${data.times_us} marks=${data.starts_us} from=${data.from_us} to=${data.to_us} onZoom=${zoom} format=${format} binary=${format === bytes}
      series=${[{ label: 'appended', values: one.values }]} sentence=${one.most === null ? 'No samples in this span.' : `mean ${/** @type {any} */ (format)(one.mean)}, highest ${/** @type {any} */ (format)(one.most)} at ${time(one.most_us)}`} />`;
  })}</div>`}<//>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const log = params.get('log') ?? 'mqtt', partition = Number(params.get('partition') ?? 0);
  const segment = Number(params.get('segment') ?? NaN), chosen = Number.isSafeInteger(segment) && segment >= 0 ? segment : null;
  const [every, setEvery] = useState(1500);
  const api = useApi(`logs/${encodeURIComponent(log)}`, { partition }, { every });
  const isKnown = api.data?.row.appended_per_s !== null;
  useEffect(() => setEvery(api.data && isKnown ? 5000 : 1500), [isKnown, api.data === null]);  // a rate needs two looks
  const map = useApi(`logs/${encodeURIComponent(log)}/map`, { partition }, { every: 5000 });
  const rows = useApi(`logs/${encodeURIComponent(log)}/segments`, { partition, limit: ROWS, ...(chosen === null ? { order: 'trouble' } : { at: chosen }) }, { every: 5000 });
  const store = me.overview.data?.store ?? 'DIR';
  return html`<${PageHead} title=${`${log}-${partition}`} crumbs=${html`<a href=${href('/logs')}>Logs</a> /`}>
      <a class="button" href=${href('/records', { log, partition: partition || null })}>Records</a><a class="button" href=${href('/topics', { log, partition: partition || null })}>Topics</a>
      <${Action} me=${me} label="Roll" body=${{ action: 'roll', log, partition }} onDone=${() => { api.again(); map.again(); rows.again(); }} />
      <${Action} me=${me} label="Verify the store" body=${{ action: 'scrub' }} onDone=${() => { map.again(); rows.again(); }} /><//>
    <${Loaded} api=${api} what="the log">${(/** @type {any} */ data) => {
      const { row } = data;
      const wrong = BAD.filter((one) => data.states[one]);
      return html`
        ${data.error && html`<${Banner} kind="bad" title="The log cannot be read.">${visible(data.error)}<//>`}
        ${wrong.length > 0 && html`<${Banner} kind="bad" title=${wrong.map((one) => plural(data.states[one], `${one} segment`)).join(', ')}>What was acknowledged as synced and does not verify is named below. <code>timestone inspect --deep ${shellWord(store)}</code> checks every byte; <code>timestone salvage</code> copies what can be verified.<//>`}
        ${data.missing.length > 0 && html`<${Banner} kind="bad" title="Records are missing:">offsets ${data.missing.slice(0, 5).map((/** @type {number[]} */ [a, b]) => `${count(a)} – ${count(b)}`).join(', ')}<//>`}
        <dl class="tiles">
          <div class="tile"><dt>Records</dt><dd>${short(data.records)}</dd><dd class="note">${row.end_offset === null ? '' : `${count(row.start_offset)} – ${count(row.end_offset)}`}</dd></div>
          <div class="tile"><dt>Appended</dt><dd>${rate(row.appended_per_s)}<span class="unit">/s</span></dd><dd class="note">${row.synced_offset === null ? '' : `${count(row.end_offset - row.synced_offset)} not on the disk yet`}</dd></div>
          <div class="tile"><dt>On the disk</dt><dd>${bytes(data.stored_bytes)}</dd><dd class="note">${data.bytes ? data.bytes > data.stored_bytes * 1.05 ? `${bytes(data.bytes)} before compression` : 'not compressed' : ''}</dd></div>
          <div class="tile"><dt>Topics</dt><dd>${short(row.topics)}</dd><dd class="note">${plural(row.segments ?? 0, 'segment')}</dd></div>
          <div class="tile"><dt>Oldest record</dt><dd>${row.oldest_us ? duration((Date.now() * 1000 - row.oldest_us) / 1e6) : '–'}</dd><dd class="note"><${Time} us=${row.oldest_us} /></dd></div>
          <div class="tile"><dt>Newest record</dt><dd>${row.newest_us ? duration(Math.max(0, (Date.now() * 1000 - row.newest_us) / 1e6)) : '–'}</dd><dd class="note"><${Time} us=${row.newest_us} /></dd></div>
        </dl>
        <section class="card" aria-labelledby="segments"><header><h2 id="segments">Segments</h2><span class="muted small">width by number of offsets</span></header>
          <div class="body"><${Loaded} api=${map} what="the segments">${(/** @type {any} */ found) => html`<${SegmentMap} data=${found} chosen=${chosen} to=${(/** @type {number} */ base) => changed({ segment: base === chosen ? null : base })} />`}<//></div>
          ${rows.data && html`<${SegmentTable} data=${rows.data} log=${log} partition=${partition} />`}</section>
        <${Traffic} log=${log} partition=${partition} />
        <div class="grid"><${Place} log=${log} partition=${partition} from=${row.start_offset ?? 0} />
          <section class="card"><header><h2>Commands</h2></header><div class="body"><dl class="commands">
            <div><dt>Newest records</dt><dd><${Command} text=${`timestone read ${shellWord(store)} ${shellWord(log)}${partition ? ` --partition ${partition}` : ''} --last 10`} /></dd></div>
            <div><dt>In Spark</dt><dd><${Command} text=${`spark.read.format("timestone").option("subscribe", "${log}").load(${JSON.stringify(store)})`} /></dd></div>
            <div><dt>Check every byte</dt><dd><${Command} text=${`timestone inspect ${shellWord(store)} --log ${shellWord(`${log}-${partition}`)} --deep`} /></dd></div></dl></div></section></div>
        <${Settings} data=${data} log=${log} partition=${partition} store=${store} me=${me} onDone=${api.again} />`;
    }}<//>`;
}

/** @param {{data: any, log: string, partition: number}} props */
function SegmentTable({ data, log, partition }) {
  return html`<${Table} caption="Segments" rows=${data.segments} keyOf=${(/** @type {any} */ row) => row.base_offset} columns=${[
    { label: 'Offsets', heading: true, cell: (/** @type {any} */ row) => html`<a class="num nowrap" href=${href('/records', { log, partition: partition || null, from: row.base_offset })}>${count(row.base_offset)} – ${count(row.next_offset)}</a>` },
    { label: 'State', cell: (/** @type {any} */ row) => html`<${State} kind=${BAD.includes(row.state) ? 'bad' : row.state === 'unclosed' && !row.is_growing ? 'warn' : 'good'}>${stateOf(row)}${row.is_compacted ? ', compacted' : ''}<//>${row.reason && html`<div class="small break">${visible(row.reason)}</div>`}${row.damaged_count > 0 && html`<div class="small">${plural(row.damaged_count, 'damaged record')}: ${row.damaged_offsets.slice(0, 5).map((/** @type {number} */ one, /** @type {number} */ index) => html`${index ? ', ' : ''}<a href=${href('/records', { log, partition: partition || null, from: one })}>${count(one)}</a>`)}</div>`}` },
    { label: 'Records', number: true, cell: (/** @type {any} */ row) => count(row.records) },
    { label: 'Raw', number: true, priority: 2, cell: (/** @type {any} */ row) => bytes(row.bytes) },
    { label: 'Stored', number: true, cell: (/** @type {any} */ row) => bytes(row.stored_bytes) },
    { label: 'First', priority: 2, cell: (/** @type {any} */ row) => html`<${Time} us=${row.first_timestamp_us} />` },
    { label: 'Last', priority: 3, cell: (/** @type {any} */ row) => html`<${Time} us=${row.last_timestamp_us} />` },
    { label: 'Side file', priority: 3, cell: (/** @type {any} */ row) => (row.has_side_file ? 'Parquet' : '–') },
    { label: 'Held by', priority: 3, cell: (/** @type {any} */ row) => row.held_by.slice(0, 3).map(visible).join(', ') || '–' },
  ]} />${data.total > data.segments.length && html`<div class="body muted small">${count(data.segments.length)} of ${plural(data.total, 'segment')}: choose a place in the map for others. <a href=${url(`logs/${encodeURIComponent(log)}/segments`, { partition })} download>JSON of all</a></div>`}`;
}

/** Return a value of a setting in a unit that one reads. @param {string} name @param {any} value */
function setting(name, value) {
  if (typeof value !== 'number' || value === 0) return String(value);
  if (name.endsWith('_ms')) return duration(value / 1000);
  return name.endsWith('_bytes') ? bytes(value) : count(value);
}

/** Return what was typed for a setting in the type of its value. @param {any} row @param {string} text */
function typedAs(row, text) {
  if (typeof row.value === 'boolean') return text === 'true';
  return typeof row.value === 'number' ? Number(text.replaceAll(',', '')) : text;
}

/** @param {{rows: any[], log: string, partition: number, me: any, onDone: () => void}} props */
function Configure({ rows, log, partition, me, onDone }) {
  const of = (/** @type {string} */ name) => rows.find((row) => row.name === name);
  return html`<${Action} me=${me} small label="Configure" body=${{ action: 'configure', log, partition }} first=${{ name: 'retention_ms', value: String(of('retention_ms')?.value ?? '') }} onDone=${onDone}
    arguments=${(/** @type {any} */ values) => (values.value === '' || (typeof of(values.name)?.value === 'number' && Number.isNaN(typedAs(of(values.name), values.value))) ? null : { settings: { [values.name]: typedAs(of(values.name), values.value) } })}
    fields=${(/** @type {any} */ values, /** @type {any} */ set) => html`<div class="row"><${Choice} label="Setting" value=${values.name} options=${rows.map((row) => [row.name, row.name])} onChange=${(/** @type {string} */ name) => { set('name', name); set('value', String(of(name).value)); }} />
      <label>Value<input class="input" value=${values.value} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => set('value', event.target.value)} /></label></div>
      <p class="small muted">${setting(values.name, typedAs(of(values.name), values.value)) !== values.value && `${setting(values.name, typedAs(of(values.name), values.value))}: `}${of(values.name)?.help}</p>`} />`;
}

/** @param {{data: any, log: string, partition: number, store: string, me: any, onDone: () => void}} props */
function Settings({ data, log, partition, store, me, onDone }) {
  if (!data.settings.length) return null;
  return html`<section class="card" aria-labelledby="settings"><header><h2 id="settings">Settings</h2><span class="grow"></span><${Configure} rows=${data.settings} log=${log} partition=${partition} me=${me} onDone=${onDone} /></header>
    <${Table} caption="Settings" rows=${data.settings} keyOf=${(/** @type {any} */ row) => row.name} columns=${[
      { label: 'Setting', heading: true, cell: (/** @type {any} */ row) => html`<code>${row.name}</code>` },
      { label: 'Value', cell: (/** @type {any} */ row) => html`<span class="num">${setting(row.name, row.value)}</span>${String(row.value) === String(row.default) ? '' : html` <span class="badge">changed</span>`}` },
      { label: 'Default', priority: 2, cell: (/** @type {any} */ row) => html`<span class="num">${setting(row.name, row.default)}</span>` },
      { label: 'Meaning', priority: 3, className: 'wide', cell: (/** @type {any} */ row) => row.help },
    ]} /><div class="body"><${Command} text=${`timestone configure ${shellWord(store)} ${shellWord(log)}${partition ? ` --partition ${partition}` : ''} retention_ms=7d`} /></div></section>`;
}
