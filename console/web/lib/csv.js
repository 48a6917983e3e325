// Rows of a reply as CSV (RFC 4180), safe to open in a spreadsheet.

/** Return the cells of a row, those of objects in it named with a dot. @param {any} row @param {string} prefix @returns {[string, any][]} */
function cells(row, prefix = '') {
  return Object.entries(row).flatMap(([key, value]) => (value !== null && typeof value === 'object' && !Array.isArray(value)
    ? cells(value, `${prefix}${key}.`) : [/** @type {[string, any]} */ ([prefix + key, value])]));
}

/** Return one cell: a text that a spreadsheet would run as a formula gets an apostrophe in front. @param {any} value */
export function cell(value) {
  if (value === null || value === undefined) return '';
  let text = typeof value === 'string' ? value : JSON.stringify(value);
  if (typeof value === 'string' && /^[=+\-@\t\r\n]/.test(text)) text = `'${text}`;
  return /[",;\r\n\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return rows as CSV with a line of names. @param {any[]} rows */
export function csvOf(rows) {
  const tables = rows.map((row) => new Map(cells(row)));
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  return [names.map(cell), ...tables.map((table) => names.map((name) => cell(table.get(name))))].map((line) => line.join(',')).join('\r\n') + '\r\n';
}

/** Let the browser save a text as a file. @param {string} text @param {string} name */
export function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
