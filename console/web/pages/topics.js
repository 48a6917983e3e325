// Topics of a log: a tree, a level at a time, with each subtree's share of the traffic; or a search.
import { html, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { changed, go, href, useRoute } from '../lib/router.js';
import { bytes, count, rate, share, time } from '../lib/format.js';
import { Empty, Loaded, Meter, Name, PageHead, Segmented, Time } from '../ui/parts.js';
import { Publish } from '../ui/publish.js';
import { Search, Table, TableFoot } from '../ui/table.js';

const SORTS = [['bytes', 'Traffic'], ['name', 'Name'], ['last_us', 'Newest']];

const FIRST = 50;

/** @param {{log: string, partition: number, under: string, sort: string, depth: number}} props */
function Level({ log, partition, under, sort, depth }) {
  const [limit, setLimit] = useState(FIRST);
  const api = useApi(`topics?under=${encodeURIComponent(under)}`, { log, partition, sort, limit }, { every: 5000 });
  return html`<${Rows} api=${api} limit=${limit} setLimit=${setLimit} log=${log} partition=${partition} sort=${sort} depth=${depth} />`;
}

/** @param {{api: any, limit: number, setLimit: (limit: number) => void, log: string, partition: number, sort: string, depth: number}} props */
function Rows({ api, limit, setLimit, log, partition, sort, depth }) {
  const data = api.data;
  if (api.error && !data) return html`<li class="tree-row"><span class="tree-name" style=${{ '--depth': String(depth) }}>${api.error.message}</span></li>`;
  if (!data) return html`<li class="tree-row"><span class="tree-name muted" style=${{ '--depth': String(depth) }}>Loading …</span></li>`;
  return html`${data.nodes.map((/** @type {any} */ node) => html`<${Node} key=${node.name} node=${node} log=${log} partition=${partition} sort=${sort} depth=${depth} />`)}
    ${data.next !== null && html`<li class="tree-row"><span class="tree-name" style=${{ '--depth': String(depth) }}><span class="leaf"></span>${limit < 500
      ? html`<button class="button small" onClick=${() => setLimit(Math.min(500, limit * 4))}>${count(data.total - data.nodes.length)} more</button>` : html`<span class="muted">${count(data.total - data.nodes.length)} more: search for them</span>`}</span></li>`}`;
}

/** @param {{node: any, log: string, partition: number, sort: string, depth: number}} props */
function Node({ node, log, partition, sort, depth }) {
  const { params } = useRoute();
  const opened = params.getAll('open').flatMap((one) => one.split('\n'));
  const isOpen = opened.includes(node.path);
  const toggle = () => {
    const next = isOpen ? opened.filter((one) => one !== node.path && !one.startsWith(`${node.path}/`)) : [...opened, node.path];
    go(changed({ open: next.join('\n') || null }), { replace: true });
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if ((event.key === 'ArrowRight' && !isOpen && node.topics_below) || (event.key === 'ArrowLeft' && isOpen)) { event.preventDefault(); toggle(); }
  };
  return html`<li><div class="tree-row" onKeyDown=${keys}>
      <span class="tree-name" style=${{ '--depth': String(depth) }}>${node.topics_below > 0 ? html`<button aria-expanded=${isOpen ? 'true' : 'false'} aria-label=${`Levels below ${node.name || '(empty)'}`} onClick=${toggle}><span aria-hidden="true">${isOpen ? '▾' : '▸'}</span></button>` : html`<span class="leaf"></span>`}
        ${node.is_topic ? html`<a class="clip" href=${href('/topic', { log, partition: partition || null, topic: node.path })}><${Name} text=${node.name} clip /></a>` : html`<a class="clip" href=${changed({ filter: `${node.path}/#`, open: null })} title="List the topics below"><${Name} text=${node.name} clip /></a>`}
        ${node.topics_below > 0 && html`<span class="badge">${count(node.topics_below)}</span>`}</span>
      <span class="n"><${Meter} part=${node.share} />${share(node.share)}</span>
      <span class="n">${rate(node.records_per_s)}</span>
      <span class="n p2">${bytes(node.bytes)}</span>
      <span class="n p2">${node.last_us ? html`<${Time} us=${node.last_us} />` : '–'}</span></div>
    ${isOpen && html`<ul><${Level} log=${log} partition=${partition} under=${node.path} sort=${sort} depth=${depth + 1} /></ul>`}</li>`;
}

/** @param {{log: string, partition: number, filter: string | null, text: string | null, sort: string}} props */
function Found({ log, partition, filter, text, sort }) {
  const { params } = useRoute();
  const query = { log, partition, filter, text, sort, after: params.get('after') };
  const api = useApi('topics/search', { ...query, limit: 100 }, { every: 3000 });
  return html`<${Loaded} api=${api} what="the topics">${(/** @type {any} */ data) => html`
    <${Table} caption="Topics that match" rows=${data.topics} busy=${api.busy} keyOf=${(/** @type {any} */ row) => row.topic} empty=${html`<${Empty} title="No topic matches" />`} columns=${[
      { label: 'Topic', heading: true, className: 'wide', cell: (/** @type {any} */ row) => html`<a href=${href('/topic', { log, partition: partition || null, topic: row.topic })}><${Name} text=${row.topic} /></a>` },
      { label: 'Records /s', number: true, cell: (/** @type {any} */ row) => rate(row.records_per_s) },
      { label: 'Records', number: true, priority: 2, cell: (/** @type {any} */ row) => count(row.records) },
      { label: 'Bytes', number: true, cell: (/** @type {any} */ row) => bytes(row.bytes) },
      { label: 'Newest', priority: 2, cell: (/** @type {any} */ row) => html`<${Time} us=${row.last_us} />` },
    ]} /><${TableFoot} shown=${data.topics.length} total=${data.total} next=${data.next} what="topics" list=${{ path: 'topics/search', query: { ...query, limit: 500 }, key: 'topics' }} />`}<//>`;
}

/** Choice of the log whose topics are shown. @param {{log: string, partition: number}} props */
export function LogChoice({ log, partition }) {
  const logs = useApi('logs', { limit: 500, server: 'false' });
  const here = `${log}/${partition}`;
  const options = (logs.data?.logs ?? []).map((/** @type {any} */ one) => `${one.log}/${one.partition}`);
  if (!options.includes(here)) options.unshift(here);
  const choose = (/** @type {any} */ event) => {
    const [name, number] = event.target.value.split('/');
    go(changed({ log: name, partition: number === '0' ? null : number, open: null, after: null }));
  };
  return html`<label class="field">Log <select class="input" onChange=${choose}>${options.map((/** @type {string} */ one) => html`<option value=${one} selected=${one === here}>${one.replace('/', '-')}</option>`)}</select></label>`;
}

/** @param {{me: any}} props */
export function Page({ me }) {
  const { params } = useRoute();
  const log = params.get('log') || 'mqtt', partition = Number(params.get('partition') ?? 0);
  const sort = params.get('sort') ?? 'bytes';
  const typed = params.get('search') ?? '';
  const isFilter = /(^|\/)[+#](\/|$)/.test(typed);
  const filter = params.get('filter') ?? (isFilter ? typed : null), text = isFilter ? null : typed || null;
  const [limit, setLimit] = useState(FIRST);
  // Without `under`: the levels below an empty first level have an empty path, too.
  const top = useApi(filter !== null || text !== null ? null : 'topics', { log, partition, sort, limit }, { every: 2000 });
  return html`<${PageHead} title="Topics"><${Publish} me=${me} /><//>
    <div class="bar"><${LogChoice} log=${log} partition=${partition} /><${Search} label="Search topics" placeholder="Part of a name, or a filter such as plant/+/#" />
      <${Segmented} label="Order" options=${SORTS.map(([word, name]) => [name, changed({ sort: word === 'bytes' ? null : word }), word === sort])} />
      ${params.has('filter') && html`<a class="button quiet" href=${changed({ filter: null })}>Back to the tree</a>`}</div>
    ${filter !== null || text !== null ? html`<${Found} log=${log} partition=${partition} filter=${filter} text=${text} sort=${sort} />`
      : html`<${Loaded} api=${top} what="the topics">${(/** @type {any} */ data) => (data.topics === 0 ? html`<div class="card"><${Empty} title="No topics yet"><p>A topic appears with its first publish, for example <code>timestone pub -t plant/1/temperature -m 21.5</code>.</p><//></div>`
        : html`<div class="table-box"><div class="tree-row head" aria-hidden="true"><span>Topic</span><span class="n">Share</span><span class="n">Records /s</span><span class="n p2">Bytes</span><span class="n p2">Newest</span></div>
          <ul class="tree" aria-label="Topics"><${Rows} api=${top} limit=${limit} setLimit=${setLimit} log=${log} partition=${partition} sort=${sort} depth=${0} /></ul></div>
          <div class="table-foot"><span class="num" role="status">${count(data.topics)} topics; traffic ${data.followed === 'sample' ? 'by a sample of' : 'of'} ${count(data.to_offset - data.from_offset)} records${data.from_us ? ` since ${time(data.from_us)}` : ''}</span></div>`)}<//>`}`;
}
