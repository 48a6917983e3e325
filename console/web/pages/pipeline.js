// The pipeline: batches, tables, how far they are in the log; and the dead letters with their bytes and reasons.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, duration, plural, shellWord, short, visible } from '../lib/format.js';
import { Banner, Command, Empty, Loaded, Meter, Name, PageHead, State, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';
import { Preview, Value } from '../ui/value.js';

/** Key of a dead letter in the URL. @param {any} row */
export const keyOf = (row) => `${row.log}/${row.partition}/${row.offset}`;

/** @param {{row: any, fields: Record<string, string>}} props */
function Letter({ row, fields }) {
  const expected = Object.entries(fields);
  return html`<aside aria-label="Dead letter"><section class="card"><header><h2>Dead letter</h2><span class="grow"></span><a href=${changed({ letter: null })}>Close</a></header><div class="body">
    <p><${State} kind="bad"><span class="break">${visible(row.reason)}</span><//></p>
    <dl class="facts section"><dt>Record</dt><dd><a href=${href('/records', { log: row.log, partition: row.partition || null, from: row.offset, order: 'oldest', at: row.offset })}>${row.log}-${row.partition}, offset ${count(row.offset)}</a></dd>
      <dt>Topic</dt><dd><${Name} text=${row.topic} /></dd><dt>Received</dt><dd><${Time} us=${row.received_us} exact /></dd><dt>Same reason</dt><dd>${plural(row.same_reason, 'dead letter')}</dd></dl>
    <h3 class="section">Its bytes</h3>
    ${row.value === null ? html`<p class="muted">This login may not read values of this topic.</p>`
      : html`<${Value} key=${keyOf(row)} value=${row.value} raw=${`records/${row.log}/${row.partition}/${row.offset}/raw`} size=${row.bytes} />`}
    ${expected.length > 0 && html`<h3 class="section">What a message should have</h3><dl class="facts">${expected.map(([name, type]) => html`<dt><code>${visible(name)}</code></dt><dd>${visible(type)}</dd>`)}</dl>`}
  </div></section></aside>`;
}

/** @param {{total: number}} props */
function DeadLetters({ total }) {
  const { params } = useRoute();
  const reason = params.get('reason'), chosen = params.get('letter');
  const api = useApi('pipeline/dead-letters', { reason, after: params.get('after'), limit: 50 }, { every: 5000 });
  return html`<div class="section"><h2 id="dead-letters">Dead letters</h2><span class="muted">${plural(total, 'message')} that could not be parsed, the newest first</span></div>
    <${Loaded} api=${api} what="the dead letters">${(/** @type {any} */ data) => {
      if (!Object.keys(data.reasons).length) return html`<div class="card"><${Empty} title="No dead letters"><p>Every message so far was valid.</p><//></div>`;
      const row = data.letters.find((/** @type {any} */ one) => keyOf(one) === chosen) ?? null;
      const most = Math.max(...Object.values(data.reasons));
      return html`<section class="card"><header><h3>By reason</h3>${reason && html`<span class="grow"></span><a href=${changed({ reason: null, after: null, letter: null })}>All reasons</a>`}</header>
          <${Table} caption="Dead letters by reason" rows=${Object.entries(data.reasons).slice(0, 20)} keyOf=${(/** @type {any} */ one) => one[0]} columns=${[
            { label: 'Reason', heading: true, className: 'wide', cell: (/** @type {any} */ one) => html`<a href=${changed({ reason: one[0], after: null, letter: null })} aria-current=${one[0] === reason ? 'true' : undefined}>${visible(one[0])}</a>` },
            { label: 'Messages', number: true, cell: (/** @type {any} */ one) => html`<${Meter} part=${one[1] / most} />${count(one[1])}` }]} /></section>
        <div class=${`split section${row ? ' with-detail' : ''}`}><div>
          <${Table} caption="Dead letters, the newest first" rows=${data.letters} busy=${api.busy} keyOf=${keyOf} empty=${html`<${Empty} title="No dead letter has this reason" />`} columns=${[
            { label: 'Received', heading: true, cell: (/** @type {any} */ one) => html`<a href=${changed({ letter: keyOf(one) === chosen ? null : keyOf(one) })}><${Time} us=${one.received_us} exact /></a>` },
            { label: 'Reason', className: 'name', cell: (/** @type {any} */ one) => html`<span class="clip" title=${visible(one.reason)}>${visible(one.reason)}</span>` },
            { label: 'Topic', className: 'name', priority: 2, cell: (/** @type {any} */ one) => html`<${Name} text=${one.topic} clip />` },
            { label: 'Size', number: true, priority: 2, cell: (/** @type {any} */ one) => bytes(one.bytes) },
            { label: 'Bytes', className: 'value-cell', cell: (/** @type {any} */ one) => html`<${Preview} value=${one.value} hidden=${one.value === null} />` },
            { label: 'Record', number: true, priority: 3, cell: (/** @type {any} */ one) => html`<a href=${href('/records', { log: one.log, partition: one.partition || null, from: one.offset, order: 'oldest', at: one.offset })}>${count(one.offset)}</a>` },
          ]} />
          ${(data.next || params.has('after')) && html`<div class="table-foot"><span class="grow"></span>${params.has('after') && html`<a class="button small" href=${changed({ after: null, letter: null })}>First page</a>`}${data.next && html`<a class="button small" rel="next" href=${changed({ after: data.next, letter: null })}>Next page</a>`}</div>`}
        </div>${row && html`<${Letter} row=${row} fields=${data.fields} />`}</div>`;
    }}<//>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const api = useApi(me.has_pipeline ? 'pipeline' : null, {}, { every: 3000 });
  if (!me.has_pipeline) {
    return html`<${PageHead} title="Pipeline" /><div class="card"><${Empty} title="No pipeline"><p>The console shows the tables of a pipeline when it is started with its settings; <code>timestone serve</code> takes them as <code>pipeline</code> in <code>[console]</code>.</p><${Command} text=${`timestone console ${shellWord(me.overview.data?.store ?? 'DIR')} --pipeline pipeline.toml`} /><//></div>`;
  }
  return html`<${PageHead} title="Pipeline" />
    <${Loaded} api=${api} what="the pipeline">${(/** @type {any} */ data) => {
      const dead = Object.values(data.reasons).reduce((sum, one) => sum + one, 0);
      const lag = data.logs.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + (one.lag ?? 0), 0);
      const age = data.last_commit_us ? (Date.now() * 1000 - data.last_commit_us) / 1e6 : null;
      return html`${!data.is_exact && html`<${Banner} kind="bad" title="The tables do not add up.">bronze should be clean, dead letters and duplicates together. The next batch completes an interrupted one; if this stays, run <code>timestone pipeline status</code>.<//>`}
        ${data.is_reprocess_interrupted && html`<${Banner} title="A reprocess was interrupted.">The next one completes it.<//>`}
        <dl class="tiles"><div class="tile"><dt>Behind</dt><dd>${short(lag)}</dd><dd class="note">${plural(lag, 'record')} not in the tables</dd></div>
          <div class="tile"><dt>Last batch</dt><dd>${age === null ? 'never' : duration(age)}</dd><dd class="note">${age === null ? '' : html`ago, at <${Time} us=${data.last_commit_us} />`}</dd></div>
          <div class="tile"><dt>Batches</dt><dd>${short(data.batches)}</dd><dd class="note">newest event <${Time} us=${data.newest_us} /></dd></div>
          <div class="tile"><dt>Dead letters</dt><dd>${short(dead)}</dd><dd class="note"><a href="#dead-letters">${plural(Object.keys(data.reasons).length, 'reason')}</a></dd></div>
          <div class="tile"><dt>Late</dt><dd>${short(data.late)}</dd><dd class="note">wait for a backfill</dd></div>
          <div class="tile"><dt>Exact</dt><dd>${data.is_exact ? 'yes' : 'no'}</dd><dd class="note">every record is in one table</dd></div></dl>
        <div class="grid"><section class="card"><header><h2>Tables</h2></header><${Table} caption="Tables" rows=${data.tables} keyOf=${(/** @type {any} */ row) => row.table} columns=${[
            { label: 'Table', heading: true, cell: (/** @type {any} */ row) => row.table }, { label: 'Rows', number: true, cell: (/** @type {any} */ row) => count(row.rows) },
            { label: 'Files', number: true, cell: (/** @type {any} */ row) => count(row.files) }, { label: 'Size', number: true, cell: (/** @type {any} */ row) => bytes(row.file_bytes) }]} /></section>
          <section class="card"><header><h2>In the log</h2></header><${Table} caption="How far the tables are" rows=${data.logs} keyOf=${(/** @type {any} */ row) => `${row.log}-${row.partition}`} columns=${[
            { label: 'Log', heading: true, cell: (/** @type {any} */ row) => html`<a href=${href('/log', { log: row.log, partition: row.partition || null })}>${row.log}-${row.partition}</a>` },
            { label: 'Next offset', number: true, cell: (/** @type {any} */ row) => count(row.offset) }, { label: 'Durable', number: true, priority: 2, cell: (/** @type {any} */ row) => count(row.synced_offset) },
            { label: 'Lag, records', number: true, cell: (/** @type {any} */ row) => count(row.lag) }, { label: 'Lag in time', number: true, cell: (/** @type {any} */ row) => (row.lag === 0 ? '0 s' : duration(row.lag_s)) }]} />
            <div class="body"><dl class="facts">${Object.entries(data.closed_us).map(([minutes, us]) => html`<dt>${plural(Number(minutes), 'minute')}</dt><dd>windows closed up to <${Time} us=${us} /></dd>`)}</dl></div></section></div>
        <${DeadLetters} total=${dead} />
        ${data.history.length > 0 && html`<div class="section"><h2>Commits of bronze</h2></div><${Table} caption="Last commits" rows=${data.history} keyOf=${(/** @type {any} */ row) => `${row.number} ${row.kind}`} columns=${[
          { label: 'Batch', heading: true, cell: (/** @type {any} */ row) => count(row.number) }, { label: 'Kind', cell: (/** @type {any} */ row) => row.kind }, { label: 'Committed', cell: (/** @type {any} */ row) => html`<${Time} us=${row.time_us} />` },
          { label: 'Records', number: true, cell: (/** @type {any} */ row) => count(row.rows) }, { label: 'Took', number: true, cell: (/** @type {any} */ row) => duration(row.took_s) }]} />`}
        <div class="section"><h2>Commands</h2></div><dl class="commands"><div><dt>Parse the dead letters again, with today's schema</dt><dd><${Command} text="timestone pipeline reprocess" /></dd></div>
          <div><dt>Windows with what came late</dt><dd><${Command} text="timestone pipeline backfill" /></dd></div></dl>`;
    }}<//>`;
}
