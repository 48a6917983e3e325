// Records of a log: from a place, by conditions, or live; one of them beside the list.
import { html, useState } from '../lib/html.js';
import { url, useApi } from '../lib/api.js';
import { changed, go, href, useRoute } from '../lib/router.js';
import { bytes, count, plural, shellWord, utc, visible } from '../lib/format.js';
import { Banner, Command, Empty, Loaded, Name, PageHead, Segmented, State, Time } from '../ui/parts.js';
import { Action } from '../ui/action.js';
import { Table } from '../ui/table.js';
import { Preview, Value } from '../ui/value.js';

const CONDITIONS = /** @type {[string, string, string][]} */ ([
  ['filter', 'Topic filter', 'plant/+/temperature'], ['text', 'Text in the value', 'error'], ['path', 'JSON path', 'device.state'], ['value', 'equals', '"failed"'], ['header', 'Header', 'name or name=value']]);

/** @param {{log: string, partition: number, params: URLSearchParams}} props */
function Query({ log, partition, params }) {
  const logs = useApi('logs', { limit: 500 });
  const [more, setMore] = useState(['path', 'header', 'value'].some((one) => params.has(one)));
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const chosen = String(form.get('log')).split('/');
    const changes = /** @type {Record<string, any>} */ ({ log: chosen[0], partition: chosen[1] === '0' ? null : chosen[1], from: form.get('from'), at: null });
    for (const [name] of CONDITIONS) if (form.has(name)) changes[name] = form.get(name);
    go(changed(changes));
  };
  const here = `${log}/${partition}`;
  const options = (logs.data?.logs ?? []).map((/** @type {any} */ one) => `${one.log}/${one.partition}`);
  if (!options.includes(here)) options.unshift(here);
  const key = params.toString();
  return html`<form class="bar" role="search" onSubmit=${submit} key=${key}>
    <label class="field">Log <select class="input" name="log" onChange=${(/** @type {any} */ event) => event.target.form.requestSubmit()}>${options.map((/** @type {string} */ one) => html`<option value=${one} selected=${one === here}>${one.replace('/', '-')}</option>`)}</select></label>
    <label class="field">From <input class="input" name="from" value=${params.get('from') ?? ''} placeholder=${params.get('order') === 'oldest' ? 'earliest' : 'latest'} size="14" list="places" autocomplete="off" /></label>
    <datalist id="places"><option value="earliest" /><option value="latest" /><option value="-15m" /><option value="-1h" /><option value="-1d" /></datalist>
    ${CONDITIONS.filter(([name]) => more || name === 'filter' || name === 'text').map(([name, label, example]) => html`<label class="field" key=${name}>${label} <input class="input" name=${name} value=${params.get(name) ?? ''} placeholder=${example} size="16" data-search=${name === 'filter' ? '' : undefined} autocomplete="off" spellcheck=${false} /></label>`)}
    <button class="button primary">Search</button>
    ${!more && html`<button type="button" class="button quiet" onClick=${() => setMore(true)}>More conditions</button>`}
    ${CONDITIONS.some(([name]) => params.has(name)) && html`<a class="button quiet" href=${changed(Object.fromEntries(CONDITIONS.map(([name]) => [name, null])))}>Clear</a>`}</form>`;
}

/** @param {(offset: number) => string} to */
const columns = (to) => [
  { label: 'Offset', heading: true, className: 'n', cell: (/** @type {any} */ row) => html`<a class="num" href=${to(row.offset)}>${count(row.offset)}</a>` },
  { label: 'Time', priority: 1, cell: (/** @type {any} */ row) => html`<${Time} us=${row.timestamp_us} exact />` },
  { label: 'Topic', className: 'name', cell: (/** @type {any} */ row) => (row.damage ? html`<${State} kind="bad">damaged<//>` : html`<${Name} text=${row.topic} clip />`) },
  { label: 'Size', number: true, priority: 2, cell: (/** @type {any} */ row) => (row.damage ? '–' : bytes(row.bytes)) },
  { label: 'QoS', number: true, priority: 3, cell: (/** @type {any} */ row) => html`${row.qos}${row.is_retained ? html` <span class="badge">retained</span>` : ''}` },
  { label: 'Value', className: 'value-cell', cell: (/** @type {any} */ row) => (row.damage ? html`<span class="small break">${visible(row.damage)}; the next record is ${count(row.offset_after)}</span>` : html`<${Preview} value=${row.value} hidden=${row.is_hidden} />`) },
];

/** @param {{log: string, partition: number, offset: number, me: any}} props */
function Detail({ log, partition, offset, me }) {
  const path = `records/${log}/${partition}/${offset}`;
  const api = useApi(path);
  return html`<aside aria-label=${`Record ${offset}`}><section class="card"><header><h2>Record ${count(offset)}</h2><span class="grow"></span><a href=${changed({ at: null })}>Close</a></header><div class="body">
    <${Loaded} api=${api} what="the record">${(/** @type {any} */ data) => {
      const row = data.record;
      if (row.damage) return html`<${Banner} kind="bad" title="This record is damaged.">${visible(row.damage)}. <a href=${changed({ at: row.offset_after })}>The next record is ${count(row.offset_after)}</a>.<//>`;
      return html`<dl class="facts">
        <dt>Topic</dt><dd>${row.topic === null ? '–' : html`<a href=${href('/topic', { log, partition: partition || null, topic: row.topic })}><${Name} text=${row.topic} /></a>`}</dd>
        <dt>Time</dt><dd><${Time} us=${row.timestamp_us} exact /> <div class="muted small">${utc(row.timestamp_us)}</div></dd>
        <dt>Flags</dt><dd>QoS ${row.qos}${row.is_retained ? ', retained' : ''}${row.is_tombstone ? ', tombstone' : ''}</dd>
        ${row.headers.map((/** @type {any} */ one) => html`<dt><${Name} text=${one.name || one.kind} /></dt><dd>${one.is_binary ? html`<code>${one.value}</code>` : html`<${Name} text=${one.value} />`}</dd>`)}</dl>
        <div class="section"></div>
        ${row.is_hidden ? html`<p class="muted">This login may not read values of this topic.</p>` : html`<${Value} value=${row.value} raw=${`${path}/raw`} size=${row.bytes} />`}
        <div class="bar section">${row.topic !== null && !row.topic.startsWith('$') && html`<${Action} me=${me} small label="Publish again" body=${{ action: 'publish', topic: row.topic, log, partition, offset, qos: row.qos, retain: row.is_retained }} />`}
          ${offset > data.start_offset && html`<a class="button small" href=${changed({ at: offset - 1 })}>Record before</a>`}${offset + 1 < data.end_offset && html`<a class="button small" href=${changed({ at: offset + 1 })}>Record after</a>`}</div>`;
    }}<//></div></section></aside>`;
}

/** @param {{state: string, paused: boolean, waiting: number, leftOut: number}} props */
function TailState({ state, paused, waiting, leftOut }) {
  const words = /** @type {Record<string, any>} */ ({ live: html`<${State} kind="good">Live<//>`, connecting: html`<${State} kind="off">Connecting<//>`, lost: html`<${State} kind="warn">Interrupted, tries again<//>`, refused: html`<${State} kind="bad">The console does not answer<//>`, off: '' });
  return html`${paused ? html`<${State} kind="off">Paused${waiting ? `, ${plural(waiting, 'record')} waiting` : ''}<//>` : words[state]}${leftOut > 0 && html`<span class="muted small">${count(leftOut)} left out: more arrive than the page shows</span>`}`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const log = params.get('log') || 'mqtt', partition = Number(params.get('partition') ?? 0);
  const live = params.get('live') === '1';
  const at = params.has('at') ? Number(params.get('at')) : null;
  const order = params.get('order') ?? (params.get('from') && params.get('from') !== 'latest' ? 'oldest' : 'newest');
  const conditions = Object.fromEntries(CONDITIONS.map(([name]) => [name, params.get(name)]));
  const from = params.get('cursor') ?? params.get('from');
  const api = useApi(live ? null : 'records', { log, partition, order, ...conditions, from: from === 'latest' && order === 'newest' ? null : from, limit: 50, bytes: 400 });
  const tail = me.stream;
  const { paused, pause: setPaused } = tail;
  const store = me.overview.data?.store ?? 'DIR';
  const to = (/** @type {number} */ offset) => changed({ at: offset === at ? null : offset });
  const rows = live ? tail.rows : api.data?.records ?? [];
  const list = html`<div>
    <div class="bar">${live ? html`<${TailState} state=${tail.state} paused=${paused} waiting=${tail.waiting} leftOut=${tail.leftOut} /><span class="grow"></span>
        <button class="button small" onClick=${() => setPaused(!paused)}>${paused ? 'Resume' : 'Pause'}</button><a class="button small" href=${changed({ live: null })}>Stop</a>`
      : html`<${Segmented} label="Order" options=${[['Newest first', changed({ order: 'newest', cursor: null }), order === 'newest'], ['Oldest first', changed({ order: 'oldest', cursor: null }), order === 'oldest']]} />
        <span class="grow"></span><a class="button" href=${changed({ live: 1, cursor: null })}>Live</a>`}</div>
    ${live ? html`<${Table} caption="Records as they arrive" rows=${rows} keyOf=${(/** @type {any} */ row) => row.offset} columns=${columns(to)} empty=${html`<${Empty} title="Waiting for records"><p>What is appended from now on appears here.</p><//>`} />`
      : html`<${Loaded} api=${api} what="the records">${(/** @type {any} */ data) => html`
        <${Table} caption=${`Records of ${log}-${partition}`} rows=${rows} busy=${api.busy} keyOf=${(/** @type {any} */ row) => row.offset} columns=${columns(to)}
          empty=${html`<${Empty} title=${data.end_offset === data.start_offset ? 'The log is empty' : 'No record matches'}><p>${data.is_complete ? `${count(data.examined)} records were examined.` : 'The search stopped after two seconds; it continues from there.'}</p><//>`} />
        <div class="table-foot"><span role="status" class="num">${plural(rows.length, 'record')}${data.examined > rows.length ? `, ${count(data.examined)} examined` : ''} of ${count(data.start_offset)} – ${count(data.end_offset)}${data.is_complete ? '' : '; stopped after two seconds'}</span><span class="grow"></span>
          <a href=${url('records', { log, partition, order, ...conditions, from, limit: 500 })} download>JSON</a>
          ${params.has('cursor') && html`<a class="button small" href=${changed({ cursor: null })}>First page</a>`}
          ${data.next !== null && html`<a class="button small" rel="next" href=${changed({ cursor: data.next, at: null, order })}>${data.is_complete ? 'Next page' : 'Search on'}</a>`}</div>`}<//>`}</div>`;
  return html`<${PageHead} title=${`Records of ${log}-${partition}`} crumbs=${html`<a href=${href('/logs')}>Logs</a> / <a href=${href('/log', { log, partition: partition || null })}>${log}-${partition}</a> /`} />
    <${Query} log=${log} partition=${partition} params=${params} />
    <div class=${`split${at === null ? '' : ' with-detail'}`}>${list}${at !== null && html`<${Detail} key=${`${log} ${partition} ${at}`} log=${log} partition=${partition} offset=${at} me=${me} />`}</div>
    <${Replay} rows=${rows} log=${log} partition=${partition} store=${store} filter=${conditions.filter} />`;
}

/** Commands for exactly the range that is shown. @param {{rows: any[], log: string, partition: number, store: string, filter: string | null}} props */
function Replay({ rows, log, partition, store, filter }) {
  if (!rows.length) return null;
  const offsets = rows.map((row) => row.offset);
  const first = Math.min(...offsets), end = Math.max(...offsets) + 1;
  const topic = filter || '#';
  return html`<div class="section"><h2>These records again</h2></div><dl class="commands">
    <div><dt>In a terminal</dt><dd><${Command} text=${`timestone read ${shellWord(store)} ${shellWord(log)}${partition ? ` --partition ${partition}` : ''} --from offset:${first} --to offset:${end}${filter ? ` --topic ${shellWord(filter)}` : ''}`} /></dd></div>
    <div><dt>By MQTT, from there on</dt><dd><${Command} text=${`timestone sub -v -t ${shellWord(`$stream/${log}/@offset:${first}/${topic}`)} -C ${rows.length}`} /></dd></div>
    <div><dt>In Spark</dt><dd><${Command} text=${`spark.read.format("timestone").option("subscribe", ${JSON.stringify(log)}).option("startingOffsets", ${JSON.stringify(JSON.stringify({ [log]: { [partition]: first } }))}).option("endingOffsets", ${JSON.stringify(JSON.stringify({ [log]: { [partition]: end } }))}).load(${JSON.stringify(store)})`} /></dd></div></dl>`;
}
