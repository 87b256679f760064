// A table that can be sorted and is shown page by page: two thousand rows at once would make the page slow.

const PAGE_ROWS = 50;

// Numbers by size, text by the alphabet, what is not there always last.
const compareBy = (value, sign) => (a, b) => {
  const [x, y] = [value(a), value(b)];
  const missing = (x === null || x === undefined) - (y === null || y === undefined);
  if (missing || x === null || x === undefined) return missing;
  if (typeof x === 'number' && typeof y === 'number') return sign * (x - y);
  return sign * String(x).localeCompare(String(y), 'en', { numeric: true });
};

// `columns` are {label, unit?, short?, numeric, value(row), cell(row)?, class?}; returns {element, show(rows)}.
const dataTable = ({ columns, rows, openRow }) => {
  let shown = rows;
  let page = 0;
  let order = null;
  const body = el('tbody');
  const heads = columns.map((column, index) => {
    const kind = [column.numeric ? 'number' : '', column.class || ''].join(' ').trim();
    const unit = column.unit ? el('span', { class: 'unit' }, column.unit) : null;
    const label = el('button', { type: 'button', class: 'sort', onclick: () => sortBy(index) }, el('span', {}, column.label), unit);
    return el('th', { scope: 'col', class: kind || null }, label);
  });
  const place = el('span', { class: 'soft small', 'aria-live': 'polite' });
  const back = el('button', { type: 'button', onclick: () => turn(-1) }, 'Back');
  const next = el('button', { type: 'button', onclick: () => turn(1) }, 'Next');
  const pages = el('div', { class: 'bar pages' }, place, back, next);

  const row = (item) => {
    const cells = columns.map((column) => {
      const kind = [column.numeric ? 'number' : '', column.class || '', column.value(item) === null ? 'none' : ''].join(' ').trim();
      const content = column.cell ? column.cell(item) : column.value(item);
      const text = typeof content === 'number' ? number(content) : content ?? '-';
      return el('td', { class: kind || null, 'data-label': column.short }, text);
    });
    const line = el('tr', {}, ...cells);
    if (openRow) line.addEventListener('click', (event) => { if (!event.target.closest('a')) openRow(item); });
    return line;
  };
  const draw = () => {
    const ordered = order
      ? [...shown].sort(compareBy(columns[order.index].value, order.sign))
      : shown;
    const begin = page * PAGE_ROWS;
    body.replaceChildren(...ordered.slice(begin, begin + PAGE_ROWS).map(row));
    const end = Math.min(begin + PAGE_ROWS, shown.length);
    place.textContent = shown.length ? `${begin + 1} to ${end} of ${shown.length}` : 'None';
    back.disabled = page === 0;
    next.disabled = end >= shown.length;
    pages.hidden = shown.length <= PAGE_ROWS && shown.length > 0;
    heads.forEach((head, index) => {
      if (order && order.index === index) head.setAttribute('aria-sort', order.sign > 0 ? 'ascending' : 'descending');
      else head.removeAttribute('aria-sort');
    });
  };
  const sortBy = (index) => {
    // The first click on a number shows the largest.
    const first = columns[index].numeric ? -1 : 1;
    order = { index, sign: order && order.index === index ? -order.sign : first };
    page = 0;
    draw();
  };
  const turn = (by) => { page += by; draw(); };
  draw();
  const table = el('table', {}, el('thead', {}, el('tr', {}, ...heads)), body);
  return {
    element: el('div', {}, el('div', { class: 'scroll' }, table), pages),
    show: (chosen) => { shown = chosen; page = 0; draw(); },
  };
};
