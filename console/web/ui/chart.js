// Charts: a figure with a sentence, a canvas by uPlot, keys, and a table of the same numbers behind a button.
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { short, time, utc } from '../lib/format.js';

const DASHES = [[], [6, 3], [2, 3]];
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** @type {Promise<any> | null} */
let loaded = null;

/** Load uPlot when the first chart is shown. */
function plotter() {
  if (!loaded) {
    const sheet = document.createElement('link');
    sheet.rel = 'stylesheet';
    sheet.href = '/vendor/uplot.css';
    document.head.append(sheet);
    loaded = import('../vendor/uplot.js').then((module) => module.default);
  }
  return loaded;
}

/** @typedef {{label: string, values: (number | null)[]}} Series */

/** Return the highest value and when it was. @param {number[]} times @param {(number | null)[]} values */
export function peak(times, values) {
  let best = -1;
  values.forEach((value, index) => { if (value !== null && (best < 0 || value > /** @type {number} */ (values[best]))) best = index; });
  return best < 0 ? null : { value: /** @type {number} */ (values[best]), us: times[best] };
}

/** Return the last value that is there. @param {(number | null)[]} values */
export const newest = (values) => values.findLast((value) => value !== null) ?? null;

/** Return whether there is no line to draw, only points. @param {(number | null)[]} values */
const lone = (values) => values.filter((value) => value !== null && value !== undefined).length < 3;

/** Return the mean of what is there. @param {(number | null)[]} values */
export function mean(values) {
  const there = /** @type {number[]} */ (values.filter((value) => value !== null));
  return there.length ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
}

/**
 * @param {object} props
 * @param {string} props.title
 * @param {number[]} props.times microseconds
 * @param {Series[]} props.series at most three
 * @param {(value: number | null) => string} [props.format]
 * @param {string} [props.sentence]
 * @param {number[]} [props.marks] starts of the server
 * @param {boolean} [props.tall]
 * @param {boolean} [props.binary] the axis has steps of powers of two, for bytes
 * @param {number | null} [props.from]
 * @param {number | null} [props.to]
 * @param {boolean} [props.fromZero]
 * @param {(from: number, to: number) => void} [props.onZoom]
 */
export function Chart({ title, times, series, format = short, sentence, marks = [], tall = false, binary = false, from = null, to = null, fromZero = true, onZoom }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const [asTable, setAsTable] = useState(false);
  const data = [times.map((us) => us / 1e6), ...series.map((one) => one.values)];
  const latest = useRef({ data, marks, format, from, to, onZoom });
  latest.current = { data, marks, format, from, to, onZoom };
  const theme = document.documentElement.dataset.theme;
  const shape = `${series.map((one) => one.label).join('|')} ${theme} ${tall}`;

  useEffect(() => {
    let gone = false;
    /** @type {ResizeObserver | null} */
    let sizes = null;
    plotter().then((uPlot) => {
      if (gone || !box.current) return;
      const style = getComputedStyle(document.documentElement);
      const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
      const height = tall ? 220 : 150;
      const axis = { stroke: color('--muted'), font: '11px system-ui, "Liberation Sans", sans-serif', grid: { stroke: color('--grid'), width: 1 }, ticks: { show: false } };
      const options = {
        width: box.current.clientWidth || 300,
        height,
        legend: { show: false },
        padding: [8, 26, 0, 0],
        cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
        scales: {
          // Of the data, not what is passed: of a single point that is a span of years.
          x: { time: true, range: () => [
            latest.current.from ? latest.current.from / 1e6 : Math.min(latest.current.data[0][0] ?? Infinity, Date.now() / 1000 - 30),
            latest.current.to ? latest.current.to / 1e6 : Date.now() / 1000] },
          y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => {
            const base = fromZero ? 0 : low ?? 0;
            const top = high ?? 0;
            return [base, top <= base ? base + 1 : top + (top - base) * 0.08];
          } },
        },
        axes: [
          { ...axis, size: 26, gap: 4, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ splits, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number} */ step) => splits.map((s) => tick(s, step)) },
          { ...axis, size: 58, gap: 6, space: 32, incrs: binary ? BINARY : undefined, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map((s) => latest.current.format(s)) },
        ],
        series: [{}, ...series.map((_one, index) => ({
          label: String(index), stroke: color(`--series-${index + 1}`), width: 1.5, dash: DASHES[index], points: { show: (/** @type {any} */ u, /** @type {number} */ at) => lone(u.data[at]), size: 5 }, spanGaps: false,
          fill: index === 0 && series.length < 3 ? `${color('--series-1')}14` : undefined,
        }))],
        hooks: {
          setCursor: [(/** @type {any} */ u) => setAt(u.cursor.idx ?? null)],
          setSelect: [(/** @type {any} */ u) => {
            if (u.select.width < 8 || !latest.current.onZoom) return;
            const low = u.posToVal(u.select.left, 'x'), high = u.posToVal(u.select.left + u.select.width, 'x');
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            latest.current.onZoom(Math.floor(low * 1e6), Math.ceil(high * 1e6));
          }],
          draw: [(/** @type {any} */ u) => {
            const { ctx, bbox } = u;
            ctx.save();
            ctx.strokeStyle = color('--line-strong');
            ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
            for (const us of latest.current.marks) {
              const x = Math.round(u.valToPos(us / 1e6, 'x', true));
              if (x < bbox.left || x > bbox.left + bbox.width) continue;
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
            }
            ctx.restore();
          }],
        },
      };
      plot.current = new uPlot(options, latest.current.data, box.current);
      sizes = new ResizeObserver(() => { if (box.current && plot.current && box.current.clientWidth !== plot.current.width) plot.current.setSize({ width: box.current.clientWidth, height }); });
      sizes.observe(box.current);
    });
    return () => { gone = true; sizes?.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => { plot.current?.setData(latest.current.data); }, [times, ...series.map((one) => one.values)]);

  const index = at !== null && at < times.length ? at : null;
  return html`<figure class="chart card"><header><figcaption><h2>${title}</h2><span class="grow"></span>
      <button class="button quiet small" aria-expanded=${asTable ? 'true' : 'false'} onClick=${() => setAsTable(!asTable)}>${asTable ? 'Hide data' : 'Data'}<span class="hidden"> of ${title}</span></button>
      ${sentence && html`<p class="sentence">${sentence}</p>`}</figcaption></header>
    <div class="body"><div class=${`plot${tall ? ' tall' : ''}`} ref=${box} aria-hidden="true"></div>
      <ul class="keys" aria-hidden="true">${series.map((one, number) => html`<li><svg width="18" height="6"><line class=${`s${number + 1}`} x1="0" y1="3" x2="18" y2="3" stroke-width="2" stroke-dasharray=${DASHES[number].join(' ')} /></svg>
        ${one.label} <b>${format(index === null ? newest(one.values) : one.values[index])}</b></li>`)}
        <li>${index === null ? '' : time(times[index])}</li></ul>
      ${asTable && html`<${DataTable} title=${title} times=${times} series=${series} format=${format} />`}
    </div></figure>`;
}

/** @param {{title: string, times: number[], series: Series[], format: (value: number | null) => string}} props */
function DataTable({ title, times, series, format }) {
  // Of many points every n-th is shown: a table of 500 lines helps no one, and the API gives all of them.
  const step = Math.max(1, Math.ceil(times.length / 60));
  const rows = times.map((_, index) => index).filter((index) => (times.length - 1 - index) % step === 0).reverse();
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Data of ${title}`}><table><caption class="hidden">${title}</caption>
    <thead><tr><th scope="col">Time</th>${series.map((one) => html`<th scope="col" class="n">${one.label}</th>`)}</tr></thead>
    <tbody>${rows.map((index) => html`<tr><th scope="row"><time title=${utc(times[index])}>${time(times[index])}</time></th>${series.map((one) => html`<td class="n">${format(one.values[index])}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** Return the text of a tick. @param {number} seconds @param {number} step */
function tick(seconds, step) {
  const at = new Date(seconds * 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, '0');
  if (step >= 86400) return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (step < 60) return `${clock}:${two(at.getSeconds())}`;
  return step >= 3600 && at.getHours() === 0 ? `${two(at.getMonth() + 1)}-${two(at.getDate())}` : clock;
}

/** Line of the last values without axes. @param {{values: (number | null)[]}} props */
export function Spark({ values }) {
  const there = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (there.length < 2) return html`<svg class="spark" aria-hidden="true" viewBox="0 0 100 24"></svg>`;
  const top = Math.max(...there) || 1;
  const points = values.map((value, index) => (value === null || value === undefined ? null
    : `${((index / (values.length - 1)) * 100).toFixed(1)},${(22 - (value / top) * 20).toFixed(1)}`)).filter(Boolean).join(' ');
  return html`<svg class="spark" aria-hidden="true" viewBox="0 0 100 24" preserveAspectRatio="none"><polyline points=${points} /></svg>`;
}
