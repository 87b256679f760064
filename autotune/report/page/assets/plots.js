// Draws the figures, with their tables behind them. Colours of page and text come from the theme alone.

const PRINT_WIDTH_PX = 680;
const NARROW_PX = 560;
const figures = new Map();

const numberOf = (point) => {
  const data = point.customdata;
  const first = Array.isArray(data) || ArrayBuffer.isView(data) ? data[0] : data;
  return typeof first === 'number' ? first : null;
};

const drawFigure = async (key) => {
  const { figure, host } = figures.get(key);
  const layout = { ...figure.layout, template: report.templates[theme()], autosize: true };
  const settings = {
    responsive: true, displaylogo: false, displayModeBar: host.clientWidth < NARROW_PX ? false : 'hover',
    modeBarButtonsToRemove: ['lasso2d', 'select2d', 'autoScale2d'],
    toImageButtonOptions: { filename: `${report.name}-${key}`, scale: 2 },
  };
  host.replaceChildren();
  await Plotly.newPlot(host, figure.data, layout, settings);
  host.on('plotly_click', (event) => {
    const number = event.points.map(numberOf).find((found) => found !== null);
    if (number !== undefined) openTrial(number);
  });
};

const repaint = (name, width) => {
  for (const { host } of figures.values()) {
    if (!host.layout) continue;
    Plotly.relayout(host, { template: report.templates[name], autosize: width === undefined, width: width ?? null });
  }
};

const plotTable = ({ columns, rows }) => dataTable({
  columns: columns.map((label, index) => ({
    label,
    numeric: rows.some((row) => typeof row[index] === 'number'),
    value: (row) => row[index],
  })),
  rows,
}).element;

const startPlots = async () => {
  for (const { key, figure, table } of report.plots) {
    const host = byId(`plot-${key}`);
    const behind = byId(`table-${key}`);
    const button = byId(`switch-${key}`);
    figures.set(key, { figure, host });
    button.hidden = false;
    button.addEventListener('click', () => {
      const asTable = behind.hidden;
      if (asTable && !behind.firstChild) behind.append(plotTable(table));
      behind.hidden = !asTable;
      host.hidden = asTable;
      button.textContent = asTable ? 'Plot' : 'Table';
      button.setAttribute('aria-pressed', String(asTable));
      if (!asTable && host.layout) Plotly.Plots.resize(host);
    });
  }
  for (const key of figures.keys()) {
    await drawFigure(key);
    // The page answers to clicks between two plots.
    await new Promise((resolve) => { setTimeout(resolve); });
  }
};

const placeOf = (host, number) => {
  for (const trace of host.data) {
    const at = Array.from(trace.customdata ?? []).findIndex((data) => numberOf({ customdata: data }) === number);
    if (at >= 0) return { x: [trace.x[at]], y: [trace.y[at]] };
  }
  return { x: [], y: [] };
};

// A ring around the chosen trial in the front; none where `number` is null.
const markTrial = (number) => {
  const host = figures.get('front')?.host;
  if (!host?.data) return;
  const { x, y } = number === null ? { x: [], y: [] } : placeOf(host, number);
  const old = host.data.findIndex((trace) => trace.meta === 'chosen');
  if (old >= 0) Plotly.restyle(host, { x: [x], y: [y] }, [old]);
  else if (x.length) {
    const color = getComputedStyle(document.documentElement).getPropertyValue('--ring');
    const marker = { symbol: 'circle-open', size: 22, line: { width: 3 }, color };
    Plotly.addTraces(host, { x, y, meta: 'chosen', mode: 'markers', hoverinfo: 'skip', showlegend: false, marker });
  }
};
