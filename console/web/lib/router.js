// The state of a page is its URL: a path and a query string. Links are plain <a href>.
import { useEffect, useState } from './html.js';

/** @typedef {{path: string, params: URLSearchParams}} Route */

const STICKY = ['theme'];
/** @type {Set<() => void>} */
const watchers = new Set();

/** Return where the browser is. @returns {Route} */
export const route = () => ({ path: location.pathname, params: new URLSearchParams(location.search) });

/** Return a path with a query string; empty values are left out, and what holds for every page is kept.
 * @param {string} path @param {Record<string, any>} [params] */
export function href(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) query.set(key, String(value));
  }
  const now = new URLSearchParams(location.search);
  for (const key of STICKY) if (now.has(key) && !query.has(key)) query.set(key, /** @type {string} */ (now.get(key)));
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** Return this page with some parameters changed; null removes one. @param {Record<string, any>} changes */
export function changed(changes) {
  const { path, params } = route();
  return href(path, { ...Object.fromEntries(params), ...changes });
}

/** Go to a place. @param {string} to @param {{replace?: boolean}} [how] */
export function go(to, { replace = false } = {}) {
  const before = location.pathname;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  if (location.pathname !== before) scrollTo(0, 0);
  for (const one of watchers) one();
}

/** Follow the place. @returns {Route} */
export function useRoute() {
  const [place, setPlace] = useState(route);
  useEffect(() => {
    const look = () => setPlace(route());
    watchers.add(look);
    addEventListener('popstate', look);
    return () => { watchers.delete(look); removeEventListener('popstate', look); };
  }, []);
  return place;
}

/** Follow clicks on links of this origin without loading the page again. */
export function followLinks() {
  addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest?.('a[href]'));
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (link.pathname.startsWith('/api/') || (link.hash && link.pathname === location.pathname && link.search === location.search)) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}
