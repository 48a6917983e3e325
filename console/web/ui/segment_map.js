// Map of the segments of a log: a cell each, as wide as its share of the offsets; of many segments the API joins neighbours.
import { html } from '../lib/html.js';
import { bytes, count, plural, time } from '../lib/format.js';

const WORDS = /** @type {Record<string, string>} */ ({ growing: 'growing', sealed: 'sealed', compressed: 'sealed, compressed', compacted: 'compacted', closed: 'closed, to be continued', unclosed: 'not closed: its owner was killed', torn: 'torn', damaged: 'damaged', orphan: 'half of its files is missing', gap: 'gap' });

/** Return the state of a segment in one word. @param {any} row */
export function stateOf(row) {
  if (row.state === 'sealed') return row.is_compressed ? 'compressed' : 'sealed';
  return row.is_growing ? 'growing' : row.state;
}

/** @param {{data: any, chosen: number | null, to: (base: number) => string}} props */
export function SegmentMap({ data, chosen, to }) {
  const states = [...new Set(data.cells.map((/** @type {any} */ one) => one.state))];
  const whole = data.end_offset - data.start_offset || 1;
  return html`<figure><figcaption class="hidden">${plural(data.segments, 'segment')} in the order of their offsets</figcaption>
    <div class="map">${data.cells.map((/** @type {any} */ one) => {
      const words = `${one.segments > 1 ? plural(one.segments, 'segment') : one.state === 'gap' ? 'gap' : 'segment'} ${count(one.base_offset)} – ${count(one.next_offset)}, ${WORDS[one.state] ?? one.state}, ${count(one.records)} records, ${bytes(one.stored_bytes)}${one.first_timestamp_us ? `, ${time(one.first_timestamp_us)} – ${time(one.last_timestamp_us)}` : ''}`;
      const style = { flexGrow: String(Math.max(0.002, (one.next_offset - one.base_offset) / whole)), flexBasis: '0' };
      return one.state === 'gap' ? html`<span class="seg-gap" style=${style} title=${words}></span>`
        : html`<a class=${`seg-${one.state}`} style=${style} href=${to(one.base_offset)} title=${words} aria-label=${words} aria-current=${chosen !== null && chosen >= one.base_offset && chosen < one.next_offset ? 'true' : undefined}></a>`;
    })}</div>
    <div class="map-ends"><span>${count(data.start_offset)}</span><span>${count(data.end_offset)}</span></div>
    <ul class="legend small muted" aria-label="What the colours mean">${states.map((one) => html`<li class="state-key"><span class=${`swatch seg-${one}`}></span> ${WORDS[one] ?? one}</li>`)}</ul></figure>`;
}
