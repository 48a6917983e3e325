// The one stream of server-sent events of this tab: figures of each second, and on a live page the records of a log.
// It is closed while the page is hidden, and continues where it stopped.
import { contact, url } from './api.js';
import { useEffect, useRef, useState } from './html.js';

/** Rows that are kept, 13 elements each, of 2,500 that a page may have; older ones leave the page, not the log. */
const KEPT = 150;
const NOTHING = { rows: /** @type {any[]} */ ([]), leftOut: 0, waiting: 0, lost: 0 };

/**
 * Follow the stream.
 * @param {Record<string, any> | null} query null follows nothing
 * @returns {{figures: any, rows: any[], leftOut: number, waiting: number, lost: number, paused: boolean, pause: (on: boolean) => void, state: string}}
 *   state: `off`, `connecting`, `live`, `lost` or `refused`; while paused, rows that arrive are counted and held back
 */
export function useStream(query) {
  const address = query && url('stream', query);
  const [figures, setFigures] = useState(/** @type {any} */ (null));
  const [tail, setTail] = useState(NOTHING);
  const [state, setState] = useState('off');
  const [paused, setPaused] = useState(false);
  const hold = useRef(false);
  const held = useRef(/** @type {any[]} */ ([]));
  const pause = (/** @type {boolean} */ on) => {
    hold.current = on;
    setPaused(on);
    if (on) return;
    const rows = held.current;
    held.current = [];
    setTail((old) => ({ ...old, rows: [...rows, ...old.rows].slice(0, KEPT), waiting: 0 }));
  };
  useEffect(() => {
    setTail(NOTHING);
    held.current = [];
    hold.current = false;
    setPaused(false);
    if (!address) { setState('off'); setFigures(null); return undefined; }
    /** @type {EventSource | null} */
    let source = null;
    /** @type {any} */
    let timer = null;
    let last = '', failures = 0;
    const records = (/** @type {MessageEvent} */ event) => {
      const found = JSON.parse(event.data);
      last = event.lastEventId || last;
      const fresh = found.records.toReversed();
      if (hold.current) held.current = [...fresh, ...held.current].slice(0, KEPT);
      setTail((old) => ({
        rows: hold.current ? old.rows : [...fresh, ...old.rows].slice(0, KEPT),
        leftOut: old.leftOut + found.left_out,
        lost: old.lost + found.lost,
        waiting: hold.current ? old.waiting + fresh.length : 0,
      }));
    };
    const open = () => {
      clearTimeout(timer);
      if (source || document.hidden) return;
      setState('connecting');
      source = new EventSource(last ? url('stream', { ...query, last_event_id: last }) : address);
      source.onopen = () => { setState('live'); failures = 0; contact.note(true); };
      source.addEventListener('figures', (event) => setFigures(JSON.parse(event.data)));
      source.addEventListener('records', records);
      source.onerror = () => {
        // The browser reconnects by itself after an interruption, but not after a status other than 200.
        failures += 1;
        setState(failures > 3 ? 'refused' : 'lost');
        if (failures > 1) setFigures(null);
        if (source?.readyState !== EventSource.CLOSED) return;
        source = null;
        timer = setTimeout(open, Math.min(10_000, 500 * 2 ** failures));
      };
    };
    const close = () => { clearTimeout(timer); source?.close(); source = null; };
    const shown = () => { if (document.hidden) close(); else open(); };
    document.addEventListener('visibilitychange', shown);
    open();
    return () => { document.removeEventListener('visibilitychange', shown); close(); };
  }, [address]);
  return { figures, ...tail, paused, pause, state };
}
