// Requests to the API of this origin, and figures that are asked for again while the page is visible.
import { useEffect, useRef, useState } from './html.js';

const BASE = '/api/v1/';

/** Problem that the API reported (RFC 9457), or that it did not answer: status 0. */
export class ApiError extends Error {
  /** @param {number} status @param {string} title @param {string} detail @param {string} type */
  constructor(status, title, detail, type) {
    super(detail || title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.type = type;
  }
}

/** Whether the console answers, and since when it does not; the shell shows it. */
export const contact = {
  /** @type {number | null} */ lostAt: null,
  /** @type {Set<() => void>} */ watchers: new Set(),
  /** @param {boolean} answered */
  note(answered) {
    if (answered === (this.lostAt === null)) return;
    this.lostAt = answered ? null : Date.now();
    for (const one of this.watchers) one();
  },
};

/** Token of the session that POST needs. @type {{token: string | null}} */
export const session = { token: null };

/** Return the URL of a request. @param {string} path @param {Record<string, any>} [params] */
export function url(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) query.set(key, String(value));
  }
  const text = query.toString();
  return BASE + path + (text ? `${path.includes('?') ? '&' : '?'}${text}` : '');
}

/** @param {string} address @param {RequestInit} init */
async function ask(address, init) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(address, { credentials: 'same-origin', cache: 'no-store', ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    contact.note(false);
    throw new ApiError(0, 'No answer', 'The console does not answer.', 'no-answer');
  }
  contact.note(true);
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return body;
  throw new ApiError(response.status, body?.title ?? response.statusText, body?.detail ?? '', body?.type ?? '');
}

/** GET a reply. @param {string} path @param {Record<string, any>} [params] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, params, signal) => ask(url(path, params), { signal });

/** POST a JSON body with the token of the session. @param {string} path @param {any} body @returns {Promise<any>} */
export const post = (path, body) => ask(url(path), {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', 'X-Timestone-Token': session.token ?? '' },
  body: JSON.stringify(body),
});

/**
 * Ask for a reply now and again. The last reply stays while the next one is on its way and when the console is gone;
 * nothing is asked while the page is hidden.
 * @param {string | null} path null asks for nothing
 * @param {Record<string, any>} [params]
 * @param {{every?: number}} [options] milliseconds between two requests; 0 asks once
 * @returns {{data: any, error: ApiError | null, busy: boolean, again: () => void}}
 */
export function useApi(path, params = {}, { every = 0 } = {}) {
  const address = path === null ? null : url(path, params);
  const [state, setState] = useState(/** @type {{for: string | null, path: string | null, data: any, error: ApiError | null}} */ (
    { for: null, path: null, data: null, error: null }));
  const [turn, setTurn] = useState(0);
  const failures = useRef(0);
  useEffect(() => {
    if (address === null) return undefined;
    const stop = new AbortController();
    /** @type {any} */
    let timer = null;
    let asking = false;
    const look = async () => {
      clearTimeout(timer);
      timer = null;
      if (asking || document.hidden) return;
      asking = true;
      let wait = every;
      try {
        const data = await ask(address, { signal: stop.signal });
        failures.current = 0;
        setState({ for: address, path, data, error: null });
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = error instanceof ApiError ? error : new ApiError(0, 'Unexpected reply', String(error), '');
        failures.current += 1;
        if (problem.status === 0 || problem.status >= 500 || problem.status === 429) {
          wait = Math.min(10_000, 500 * 2 ** Math.min(failures.current, 5));
        } else {
          wait = every && (problem.status === 404 || problem.status === 410) ? Math.max(every, 5000) : 0;  // it may come
        }
        setState((old) => ({ for: address, path, data: old.path === path ? old.data : null, error: problem }));
      } finally {
        asking = false;
      }
      if (wait && !stop.signal.aborted) timer = setTimeout(look, wait);
    };
    const shown = () => { if (!document.hidden && timer === null && (every || failures.current)) look(); };
    document.addEventListener('visibilitychange', shown);
    look();
    return () => { stop.abort(); clearTimeout(timer); document.removeEventListener('visibilitychange', shown); };
  }, [address, every, turn]);
  const current = state.path === path;
  return {
    data: current ? state.data : null,
    error: current && state.for === address ? state.error : null,
    busy: address !== null && state.for !== address,
    again: () => setTurn((n) => n + 1),
  };
}

/** Follow whether the console answers. @returns {number | null} since when it does not, in ms */
export function useContact() {
  const [lostAt, setLostAt] = useState(contact.lostAt);
  useEffect(() => {
    const look = () => setLostAt(contact.lostAt);
    contact.watchers.add(look);
    look();
    return () => { contact.watchers.delete(look); };
  }, []);
  return lostAt;
}
