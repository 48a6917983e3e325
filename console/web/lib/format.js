// Figures, times and names as text. Times are microseconds since 1970, as in the API.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const three = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const NONE = '–';
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** @param {any} value */
const absent = (value) => value === null || value === undefined || Number.isNaN(value);

/** Return a count with thousands separated. @param {number | null | undefined} value */
export const count = (value) => (absent(value) ? NONE : whole.format(/** @type {number} */ (value)));

/** Return a count of at most five characters, for axes and tiles. @param {number | null | undefined} value */
export function short(value) {
  if (absent(value)) return NONE;
  const n = /** @type {number} */ (value);
  const size = Math.abs(n);
  if (size >= 1e9) return `${three.format(n / 1e9)} G`;
  if (size >= 1e6) return `${three.format(n / 1e6)} M`;
  if (size >= 1e4) return `${three.format(n / 1e3)} k`;
  return size >= 100 ? whole.format(n) : tenth.format(n);
}

/** Return a rate; the unit stands in the heading. @param {number | null | undefined} value */
export function rate(value) {
  if (absent(value)) return NONE;
  const n = /** @type {number} */ (value);
  return n !== 0 && Math.abs(n) < 100 ? tenth.format(n) : whole.format(n);
}

/** Return a size in binary units. @param {number | null | undefined} value */
export function bytes(value) {
  if (absent(value)) return NONE;
  let n = /** @type {number} */ (value), unit = 0;
  while (Math.abs(n) >= 1024 && unit < UNITS.length - 1) { n /= 1024; unit++; }
  return `${unit === 0 ? whole.format(n) : n < 100 ? tenth.format(n) : whole.format(n)} ${UNITS[unit]}`;
}

/** Return a part of one as per cent. @param {number | null | undefined} value */
export function share(value) {
  if (absent(value)) return NONE;
  const per = /** @type {number} */ (value) * 100;
  return per > 0 && per < 0.1 ? '< 0.1 %' : `${per < 10 ? tenth.format(per) : whole.format(per)} %`;
}

/** Return a latency given in seconds. @param {number | null | undefined} seconds */
export function latency(seconds) {
  if (absent(seconds)) return NONE;
  const s = /** @type {number} */ (seconds);
  if (s === 0) return '0 ms';
  if (s < 0.001) return `${whole.format(s * 1e6)} µs`;
  if (s < 1) return `${three.format(s * 1e3)} ms`;
  return `${three.format(s)} s`;
}

/** Return a length of time in its two largest units. @param {number | null | undefined} seconds @returns {string} */
export function duration(seconds) {
  if (absent(seconds)) return NONE;
  const s = /** @type {number} */ (seconds);
  if (s < 0) return `−${duration(-s)}`;
  if (s < 10) return `${tenth.format(s)} s`;
  if (s < 60) return `${whole.format(s)} s`;
  const steps = /** @type {[number, string][]} */ ([[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]);
  const first = steps.findIndex(([unit]) => s >= unit);
  const [unit, name] = steps[first];
  const [below, belowName] = steps[first + 1];
  const major = Math.floor(s / unit), minor = Math.floor((s - major * unit) / below);
  return minor && major < 100 ? `${whole.format(major)} ${name} ${minor} ${belowName}` : `${whole.format(major)} ${name}`;
}

const pad = (/** @type {number} */ n, width = 2) => String(n).padStart(width, '0');

/** Return a local time: of today without the date. @param {number | null | undefined} us @param {boolean} [exact] with milliseconds */
export function time(us, exact = false) {
  if (absent(us) || !us) return NONE;
  const at = new Date(us / 1000), now = new Date();
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}${exact ? `.${pad(at.getMilliseconds(), 3)}` : ''}`;
  if (at.toDateString() === now.toDateString()) return clock;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock}`;
}

/** Return a time in UTC, as copies have it. @param {number | null | undefined} us */
export function utc(us) {
  if (absent(us) || !us) return '';
  const at = new Date(/** @type {number} */ (us) / 1000);
  return Number.isNaN(at.getTime()) ? `${us} µs` : `${at.toISOString().slice(0, -1)}${pad(Math.floor(/** @type {number} */ (us) % 1000), 3)}Z`;
}

// Controls, formats (direction, zero width), separators that break lines, unassigned and private characters, lone
// surrogates, blanks that look like a space, and fillers that show nothing.
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}\u00a0\u034f\u115f\u1160\u17b4\u17b5\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

/** Return a name with everything written out that is invisible or changes direction. @param {string} text */
export const visible = (text) => String(text).replace(HIDDEN, (one) => {
  const code = /** @type {number} */ (one.codePointAt(0));
  if (one === '\n') return '\\n';
  if (one === '\t') return '\\t';
  if (one === '\r') return '\\r';
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
});

/** Return the same for text of several lines: line ends and tabs stay. @param {string} text */
export const visibleText = (text) => text.split('\n').map((line) => line.split('\t').map(visible).join('\t')).join('\n');

/** Return a word as an argument of a POSIX shell. @param {string} word */
export function shellWord(word) {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word)) return word;
  if (!HIDDEN.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
  HIDDEN.lastIndex = 0;
  const escaped = Array.from(new TextEncoder().encode(word), (byte) => (byte >= 0x20 && byte < 0x7f && byte !== 0x27 && byte !== 0x5c
    ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`)).join('');
  return `$'${escaped}'`;
}

/** Return a word as an argument that is no option, whatever it begins with. @param {string} word */
export const operand = (word) => (word.startsWith('-') ? `-- ${shellWord(word)}` : shellWord(word));

/** Return a noun with its number. @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
