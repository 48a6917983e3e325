// The shell of the console: navigation, theme, keys, banners; it shows the page that the URL names.
import { Fragment, html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from './lib/html.js';
import { post, session, useApi, useContact } from './lib/api.js';
import { changed, followLinks, go, href, useRoute } from './lib/router.js';
import { duration, time } from './lib/format.js';
import { useStream } from './lib/stream.js';
import { OpenAction } from './ui/action.js';
import { Banner, Dialog, Name, State } from './ui/parts.js';

/** Path -> title, letter behind `g`, module. @type {Record<string, {title: string, key?: string, load: () => Promise<any>, nav?: string}>} */
const PAGES = {
  '/': { title: 'Overview', key: 'o', load: () => import('./pages/overview.js') },
  '/clients': { title: 'Clients', key: 'c', load: () => import('./pages/clients.js') },
  '/client': { title: 'Client', nav: '/clients', load: () => import('./pages/client.js') },
  '/topics': { title: 'Topics', key: 't', load: () => import('./pages/topics.js') },
  '/topic': { title: 'Topic', nav: '/topics', load: () => import('./pages/topic.js') },
  '/logs': { title: 'Logs', key: 'l', load: () => import('./pages/logs.js') },
  '/log': { title: 'Log', nav: '/logs', load: () => import('./pages/log.js') },
  '/records': { title: 'Records', key: 'r', load: () => import('./pages/records.js') },
  '/readers': { title: 'Readers', key: 'e', load: () => import('./pages/readers.js') },
  '/pipeline': { title: 'Pipeline', key: 'p', load: () => import('./pages/pipeline.js') },
  '/alerts': { title: 'Alerts', key: 'a', load: () => import('./pages/alerts.js') },
  '/about': { title: 'About', key: 'b', load: () => import('./pages/about.js') },
  '/login': { title: 'Log in', load: () => import('./pages/login.js') },
};
const GROUPS = [['/', '/alerts'], ['/clients', '/topics'], ['/logs', '/records', '/readers', '/pipeline'], ['/about']];
const THEMES = { system: 'System', light: 'Light', dark: 'Dark' };
const dark = matchMedia('(prefers-color-scheme: dark)');

/** Apply the theme of the URL, or that of the system. @param {URLSearchParams} params */
function applyTheme(params) {
  const chosen = params.get('theme');
  const theme = chosen === 'dark' || chosen === 'light' ? chosen : dark.matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = theme;
  return theme;
}

/** Keys of the whole console; of a letter nothing happens while one types. @param {{setHelp: (on: boolean) => void, enabled: boolean}} props */
function useKeys({ setHelp, enabled }) {
  useEffect(() => {
    let going = 0;
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const typing = target.matches('input, textarea, select, [contenteditable]');
      if (event.key === 'Escape' && typing && target.matches('[data-search]')) { target.blur(); return; }
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || !enabled) return;
      if (event.key === '?') { event.preventDefault(); setHelp(true); return; }
      if (event.key === '/') {
        const field = /** @type {HTMLInputElement | null} */ (document.querySelector('[data-search]'));
        if (field) { event.preventDefault(); field.focus(); field.select(); }
        return;
      }
      if (Date.now() - going < 1500) {
        going = 0;
        const found = Object.entries(PAGES).find(([, page]) => page.key === event.key);
        if (found) { event.preventDefault(); go(href(found[0])); }
        return;
      }
      if (event.key === 'g') { going = Date.now(); return; }
      if (event.key === 'j' || event.key === 'k') {
        const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('main tbody tr, main .tree-row:not(.head)')]
          .map((row) => row.querySelector('a[href]')).filter(Boolean));
        if (!links.length) return;
        const here = links.findIndex((link) => link.closest('tr, .tree-row')?.contains(document.activeElement));
        const next = here < 0 ? 0 : Math.max(0, Math.min(links.length - 1, here + (event.key === 'j' ? 1 : -1)));
        event.preventDefault();
        links[next].focus();
      }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [enabled, setHelp]); // a function made by each rendering would forget the g when figures arrive before the letter
}

/** @param {{onClose: () => void, keys: boolean, setKeys: (on: boolean) => void}} props */
function Help({ onClose, keys, setKeys }) {
  const lines = [['/', 'search'], ['j  k', 'next and previous row'], ['Enter', 'open the row'], ['Esc', 'leave a field, close a dialog'], ['?', 'this help'],
    ...Object.values(PAGES).filter((page) => page.key).map((page) => [`g ${page.key}`, page.title])];
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys-list">${lines.map(([key, text]) => html`<${Fragment} key=${key}><dt>${key.split(/\s+/).map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${text}</dd><//>`)}</dl>
    <p class="small muted"><label class="field"><input type="checkbox" checked=${keys} onChange=${(/** @type {any} */ event) => setKeys(event.target.checked)} /> Single letters act, until this page is loaded again</label></p>
  <//>`;
}

/** @param {{path: string, overview: any, figures: any, me: any, onHelp: () => void}} props */
function Side({ path, overview, figures, me, onHelp }) {
  const { params } = useRoute();
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  const nav = PAGES[path]?.nav ?? path;
  const wrong = overview?.wrong?.filter((/** @type {any} */ one) => one.log === null).length ?? 0;
  const theme = params.get('theme') ?? 'system';
  const order = Object.keys(THEMES);
  const following = order[(order.indexOf(theme) + 1) % order.length] ?? 'light';
  const leave = async () => { await post('logout', {}).catch(() => null); session.token = null; location.assign('/login'); };
  return html`<header class=${`side${open ? ' open' : ''}`}>
    <a class="brand" href=${href('/')}><svg width="20" height="20" viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4" fill="#2a5bd7"/><path d="M4 4.5h8M4 8h5.5M4 11.5h3" stroke="#fff" stroke-width="1.8" stroke-linecap="round"/></svg>Timestone</a>
    <button class="button small menu-button" aria-expanded=${open ? 'true' : 'false'} aria-controls="nav" onClick=${() => setOpen(!open)}>Menu</button>
    <nav id="nav" aria-label="Pages">${GROUPS.map((group, index) => html`<ul class="nav" key=${index}>${group.map((one) => html`
      <li key=${one}><a href=${href(one)} aria-current=${nav === one ? 'page' : undefined}>${PAGES[one].title}${one === '/alerts' && wrong > 0
        ? html`<span class="badge bad">${wrong}<span class="hidden"> firing</span></span>` : ''}</a></li>`)}</ul>`)}</nav>
    <div class="side-foot">
      <${ServerWord} server=${figures?.server ?? overview?.server} now_us=${figures?.now_us ?? overview?.now_us} />
      ${me?.user && html`<div class="break"><${Name} text=${me.user} /> <span class="badge">${me.role}</span></div>`}
      <div class="side-tools">
        <button class="button quiet small" onClick=${() => go(changed({ theme: following === 'system' ? null : following }), { replace: true })}>Theme: ${THEMES[/** @type {keyof THEMES} */ (theme)] ?? 'System'}</button>
        <button class="button quiet small" onClick=${onHelp}>Keys</button>
        ${me?.user && html`<button class="button quiet small" onClick=${leave}>Log out</button>`}
      </div>
    </div></header>`;
}

/** @param {{server: any, now_us: number}} props */
function ServerWord({ server, now_us }) {
  if (!server) return html`<div></div>`;
  if (server.state === 'running') {
    const up = server.started_us ? duration((now_us - server.started_us) / 1e6) : '';
    return html`<div><${State} kind="good">Server running<//><div>for ${up}, ${server.version}</div></div>`;
  }
  if (server.state === 'silent') return html`<div><${State} kind="bad">Server does not answer<//><div>process ${server.pid}</div></div>`;
  return html`<div><${State} kind="off">No server running<//>${server.last_sample_us && html`<div>last seen ${time(server.last_sample_us)}</div>`}</div>`;
}

/** @param {{error: any, reset: () => void}} props */
function Broken({ error, reset }) {
  return html`<div class="card"><div class="empty" role="alert"><strong>This page failed</strong><p>${String(error?.message ?? error)}</p><p><button class="button small" onClick=${reset}>Show it again</button></p></div></div>`;
}

/** @param {{path: string, me: any}} props */
function Page({ path, me }) {
  const [module, setModule] = useState(/** @type {{path: string, Page: any} | null} */ (null));
  const [error, reset] = useErrorBoundary();
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const first = useRef(true);
  useEffect(() => {
    let gone = false;
    reset();
    PAGES[path]?.load().then((loaded) => { if (!gone) setModule({ path, Page: loaded.Page }); });
    return () => { gone = true; };
  }, [path]);
  const shown = module?.path === path ? module : null;
  useLayoutEffect(() => {
    document.title = `${PAGES[path]?.title ?? 'Not found'} – Timestone`;
    if (!shown) return;
    // After a change of page the focus begins at its heading, as after a load; the first page leaves it alone.
    if (!first.current) /** @type {HTMLElement | null} */ (box.current?.querySelector('h1'))?.focus({ preventScroll: true });
    first.current = false;
  }, [shown?.path]);
  let content;
  if (!PAGES[path]) content = html`<h1 tabindex="-1">Not found</h1><p class="lead">There is no page ${path}. <a href=${href('/')}>Overview</a></p>`;
  else if (error) content = html`<${Broken} error=${error} reset=${reset} />`;
  else if (!shown) content = html`<div class="page-head"><h1 tabindex="-1">${PAGES[path].title}</h1></div>`;
  else content = html`<${shown.Page} me=${me} />`;
  return html`<div ref=${box} data-shown=${shown ? path : undefined}>${content}</div>`;
}

/** @param {{server: any, path: string}} props */
function Banners({ server, path }) {
  const lostAt = useContact();
  const last = server?.last_sample_us ? ` The last figures are of ${time(server.last_sample_us)}.` : '';
  if (lostAt) return html`<${Banner} kind="bad" title="The console does not answer.">Since ${time(lostAt * 1000)}. What you see is what was known then; it continues when the console is back.<//>`;
  if (server?.state === 'silent') return html`<${Banner} kind="bad" title="The server does not answer.">A process (${server.pid}) owns the store.${last}<//>`;
  if (server?.state === 'stopped' && path !== '/login') return html`<${Banner} kind="info" title="No server runs on this store.">Records, history and readers are read from the files.${last}<//>`;
  return null;
}

/** What the one stream of this tab carries: figures, and on a live page the records of its log.
 * @param {string} path @param {URLSearchParams} params */
function streamOf(path, params) {
  if (path !== '/records' || params.get('live') !== '1') return {};
  return { log: params.get('log') || 'mqtt', partition: params.get('partition'), filter: params.get('filter') };
}

function App() {
  const { path, params } = useRoute();
  const [help, setHelp] = useState(false);
  const [keys, setKeys] = useState(true);
  const [, setDark] = useState(dark.matches);
  const meApi = useApi('me', {}, { every: 60_000 });
  const me = meApi.data;
  if (me?.token) session.token = me.token;
  const allowed = me && me.role !== 'none';
  const overview = useApi(allowed && path !== '/login' ? 'overview' : null, {}, { every: 5000 });
  const stream = useStream(allowed && path !== '/login' ? streamOf(path, params) : null);
  applyTheme(params);
  useEffect(() => {
    const look = () => setDark(dark.matches);
    dark.addEventListener('change', look);
    return () => dark.removeEventListener('change', look);
  }, []);
  useKeys({ setHelp, enabled: keys });
  const mustLogIn = (me && !allowed && path !== '/login') || (meApi.error?.status === 401 && path !== '/login');
  useEffect(() => {
    if (mustLogIn) go(href('/login', { next: location.pathname + location.search }), { replace: true });
  }, [mustLogIn]);
  if (path === '/login') return html`<main class="login" id="content"><${Page} path=${path} me=${me} /></main>`;
  return html`<a class="skip" href="#content">Skip to the content</a>
    <div class="shell"><${Side} path=${path} overview=${overview.data} figures=${stream.figures} me=${me} onHelp=${() => setHelp(true)} />
    <main class="main" id="content" tabindex="-1"><${Banners} server=${stream.figures?.server ?? overview.data?.server} path=${path} />
      ${allowed && html`<${Page} path=${path} me=${{ ...me, overview, stream }} />`}
      ${!me && meApi.error && !mustLogIn && html`<p class="lead">${meApi.error.message}</p>`}</main></div>
    <${OpenAction} />
    ${help && html`<${Help} onClose=${() => setHelp(false)} keys=${keys} setKeys=${setKeys} />`}`;
}

// The page's modules, while the caller is asked for.
PAGES[location.pathname]?.load().catch(() => null);
applyTheme(new URLSearchParams(location.search));
followLinks();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
