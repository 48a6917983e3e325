// One topic: its newest value, those before with what changed, and any number of its JSON as a chart.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, href, useRoute } from '../lib/router.js';
import { bytes, count, plural, shellWord, short, time, visible } from '../lib/format.js';
import { literals, parseTree } from '../lib/json_tree.js';
import { Action } from '../ui/action.js';
import { Publish } from '../ui/publish.js';
import { Chart, mean, newest, peak } from '../ui/chart.js';
import { Command, Empty, Loaded, Name, PageHead, Segmented, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';
import { Preview, Value } from '../ui/value.js';
import { SpanChoice, useSpan, zoom } from './overview.js';

/** What changed from the value before, as old and new literals by path. @param {any} row @param {any} before */
function difference(row, before) {
  if (!before?.value || !row.value || row.value.kind !== 'json' || before.value.kind !== 'json') return null;
  const [now, then] = [parseTree(row.value.text), parseTree(before.value.text)];
  if (!now || !then) return null;
  const old = new Map(literals(then.root));
  return literals(now.root).filter(([path, raw]) => old.get(path) !== raw).map(([path, raw]) => /** @type {[string, string | undefined, string]} */ ([path, old.get(path), raw]));
}

/** @param {{log: string, partition: number, topic: string, numbers: string[]}} props */
function Numbers({ log, partition, topic, numbers }) {
  const { params } = useRoute();
  const span = useSpan();
  const path = params.get('number') ?? numbers[0];
  const now = Math.ceil(Date.now() / 5000) * 5_000_000;
  const from = span.from ?? now - (span.seconds ?? 3600) * 1e6, to = span.to ?? now;
  const api = useApi('topics/series', { log, partition, topic, path, from, to }, { every: span.every });
  return html`<div class="section"><h2>Numbers</h2>${numbers.length > 1 && html`<${Segmented} label="Which number" options=${numbers.slice(0, 12).map((one) => [visible(one) || 'value', changed({ number: one === numbers[0] ? null : one }), one === path])} />`}<span class="grow"></span><${SpanChoice} /></div>
    <${Loaded} api=${api} what="the numbers">${(/** @type {any} */ data) => {
      const most = peak(data.times_us, data.values);
      return html`<${Chart} tall fromZero=${false} title=${visible(path) || 'Value'} times=${data.times_us} from=${from} to=${to} onZoom=${zoom} format=${short} series=${[{ label: visible(path) || 'value', values: data.values }]}
        sentence=${most === null ? 'No values in this span.' : `${plural(data.values.length, 'value')}${data.is_sampled ? ' (some were left out)' : ''}: now ${short(newest(data.values))}, mean ${short(mean(data.values))}, highest ${short(most.value)} at ${time(most.us)}`} />`;
    }}<//>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const log = params.get('log') || 'mqtt', partition = Number(params.get('partition') ?? 0), topic = params.get('topic') ?? '';
  const before = params.get('before');
  const api = useApi('topics/value', { log, partition, topic, before, limit: 20 }, { every: before ? 0 : 2000 });
  const store = me.overview.data?.store ?? 'DIR';
  const levels = topic.split('/');
  return html`<${PageHead} title=${html`<${Name} text=${topic} />`} crumbs=${html`<a href=${href('/topics', { log, partition: partition || null })}>Topics</a> / ${levels.slice(0, -1).map((level, index) => html`<a href=${href('/topics', { log, partition: partition || null, filter: `${levels.slice(0, index + 1).join('/')}/#` })}><${Name} text=${level} /></a> / `)}`}>
      <a class="button" href=${href('/records', { log, partition: partition || null, filter: topic })}>Records</a><a class="button" href=${href('/records', { log, partition: partition || null, filter: topic, live: 1 })}>Live</a>
      <${Publish} me=${me} topic=${topic} onDone=${api.again} />
      ${api.data?.is_retained && html`<${Action} me=${me} label="Delete retained" danger body=${{ action: 'delete_retained', topic }} onDone=${api.again} />`}<//>
    <${Loaded} api=${api} what="the topic">${(/** @type {any} */ data) => {
      if (!data.values.length) return html`<div class="card"><${Empty} title="No value found"><p>${data.is_complete ? 'The log has no record of this topic; retention may have deleted it.' : 'The search stopped early; earlier records were not looked at.'}</p><//></div>`;
      const [first] = data.values;
      const raw = `records/${log}/${partition}/${first.offset}/raw`;
      return html`<section class="card" aria-labelledby="newest"><header><h2 id="newest">${before ? 'Value' : 'Newest value'}</h2><span class="muted"><${Time} us=${first.timestamp_us} exact />, offset <a href=${href('/records', { log, partition: partition || null, from: first.offset, order: 'oldest', at: first.offset })}>${count(first.offset)}</a>${data.is_retained ? ', retained' : ''}</span></header>
          <div class="body">${first.is_hidden ? html`<p class="muted">This login may not read values of this topic.</p>` : first.value ? html`<${Value} value=${first.value} raw=${raw} size=${first.bytes} />` : html`<p>${visible(first.damage ?? '')}</p>`}</div></section>
        ${data.numbers.length > 0 && html`<${Numbers} log=${log} partition=${partition} topic=${topic} numbers=${data.numbers} />`}
        <div class="section"><h2>Values before</h2></div>
        <${Table} caption="Values, the newest first" rows=${data.values} keyOf=${(/** @type {any} */ row) => row.offset} columns=${[
          { label: 'Time', heading: true, cell: (/** @type {any} */ row) => html`<a href=${href('/records', { log, partition: partition || null, from: row.offset, order: 'oldest', at: row.offset })}><${Time} us=${row.timestamp_us} exact /></a>` },
          { label: 'Size', number: true, priority: 2, cell: (/** @type {any} */ row) => bytes(row.bytes) },
          { label: 'Changed', className: 'wide', cell: (/** @type {any} */ row) => {
            const found = difference(row, data.values[data.values.indexOf(row) + 1]);
            if (found === null) return html`<span class="muted">–</span>`;
            if (!found.length) return html`<span class="muted">nothing</span>`;
            return found.slice(0, 4).map(([path, old, raw]) => html`<div><span class="muted">${visible(path)}</span> ${old !== undefined && html`<del class="diff-old mono">${visible(old)}</del> `}<ins class="diff-new mono">${visible(raw)}</ins></div>`);
          } },
          { label: 'Value', className: 'value-cell', priority: 2, cell: (/** @type {any} */ row) => html`<${Preview} value=${row.value} hidden=${row.is_hidden} />` },
        ]} />
        ${data.next !== null && html`<div class="table-foot"><span class="grow"></span>${before && html`<a class="button small" href=${changed({ before: null })}>Newest</a>`}<a class="button small" href=${changed({ before: data.next })}>Earlier values</a></div>`}
        <div class="section"><h2>Commands</h2></div><dl class="commands">
          <div><dt>Follow it by MQTT</dt><dd><${Command} text=${`timestone sub -v -t ${shellWord(topic)}`} /></dd></div>
          <div><dt>Its history</dt><dd><${Command} text=${`timestone read ${shellWord(store)} ${shellWord(log)} --topic ${shellWord(topic)} --format text`} /></dd></div></dl>`;
    }}<//>`;
}
