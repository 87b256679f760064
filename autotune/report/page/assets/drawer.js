// One trial beside the page: what ran, what was measured, why it failed.

let openedFrom = null;

const plainTable = (heads, rows) => el(
  'div', { class: 'scroll' },
  el(
    'table', {},
    el('thead', {}, el('tr', {}, ...heads.map((head, index) => el('th', { scope: 'col', class: index ? 'number' : null }, head)))),
    el('tbody', {}, ...rows.map((row) => el('tr', {}, ...row.map((cell, index) => el('td', { class: index ? 'number' : null }, cell))))),
  ),
);

const part = (title, ...content) => [el('h3', {}, title), ...content];

const range = (low, high) => (low === null ? null : el('span', { class: 'soft' }, `${milliseconds(low)}\u2013${milliseconds(high)}`));

const median = ([value, low, high]) => el('span', {}, milliseconds(value), range(low, high));

const ladderOf = (trial) => part(
  'Measured',
  plainTable(
    ['Streams', 'out tok/s', 'TTFT ms', 'TPOT ms'],
    trial.points.map((point) => [
      `${point.streams}${point.suspect ? ' ?' : ''}`, number(point.out_tok_s), median(point.ttft), median(point.tpot),
    ]),
  ),
  el('p', { class: 'soft small' }, 'Medians, with the 95 % interval below. A question mark: the numbers are in doubt.'),
);

const facts = (pairs) => el(
  'dl', { class: 'facts' },
  ...pairs.filter(([, value]) => value).flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]),
);

const failureOf = (trial) => {
  const { failure } = trial;
  const place = [failure.line_number ? `line ${failure.line_number}` : null, failure.process].filter(Boolean).join(', ');
  return part(
    'Why it failed',
    facts([
      ['Failure', `${failure.kind} at ${failure.phase}, blame: ${failure.blame}`],
      ['Why', failure.why],
      ['What to do', failure.cure],
      ['Learned', trial.lessons.map((lesson) => `never again: ${lesson}`).join('; ')],
    ]),
    failure.root_line ? el('pre', { class: 'log' }, failure.root_line) : null,
    place ? el('p', { class: 'soft small' }, `Root cause, ${place}`) : null,
  );
};

const settingsOf = (trial) => part(
  'Settings',
  trial.settings.length
    ? el('table', {}, el('tbody', {}, ...trial.settings.map(([name, value]) => el(
      'tr', {}, el('th', { scope: 'row' }, name), el('td', { class: 'number text' }, value),
    ))))
    : el('p', {}, "vLLM's defaults"),
);

const fillTrial = (trial) => {
  const close = el('button', { type: 'button', id: 'close-trial', onclick: closeTrial }, 'Close');
  const values = report.objectives
    .map(({ name, unit, scale }, index) => [name, trial.values[index] === null ? null : `${number(trial.values[index] * scale)} ${unit}`]);
  const steps = trial.steps.map(([step, seconds]) => `${step} ${duration(seconds)}`).join(', ');
  byId('trial').replaceChildren(...[
    el('div', { class: 'plot-head' }, el('div', {}, el('h2', { tabindex: '-1' }, `Trial ${trial.number}`), el('p', {}, stateMark(trial), trial.purpose)), close),
    facts(values),
    ...(trial.why && !trial.failure ? [el('p', {}, trial.why)] : []),
    ...(trial.failure ? failureOf(trial) : []),
    ...part('Command', trial.command ? command(trial.command, trial.shown) : el('p', {}, 'It was never launched.')),
    ...(trial.points.length ? ladderOf(trial) : []),
    ...trial.notes.map((note) => el('p', { class: 'note small' }, note)),
    ...settingsOf(trial),
    ...part('When', facts([['Began', trial.began], ['Steps', steps], ['Log', trial.log]])),
  ].filter(Boolean));
};

const openTrial = (number) => {
  const trial = report.trials.find((each) => each.number === number);
  if (!trial) return;
  const drawer = byId('trial');
  if (!drawer.contains(document.activeElement)) openedFrom = document.activeElement;
  fillTrial(trial);
  drawer.hidden = false;
  drawer.scrollTop = 0;
  document.body.classList.add('beside');
  history.replaceState(null, '', `#trial-${number}`);
  drawer.querySelector('h2').focus({ preventScroll: true });
  markTrial(number);
  dispatchEvent(new Event('resize'));
};

const closeTrial = () => {
  byId('trial').hidden = true;
  document.body.classList.remove('beside');
  history.replaceState(null, '', location.pathname + location.search);
  if (openedFrom) openedFrom.focus({ preventScroll: true });
  markTrial(null);
  dispatchEvent(new Event('resize'));
};

const openFromAddress = () => {
  const found = /^#trial-(\d+)$/.exec(location.hash);
  if (found) openTrial(Number(found[1]));
};

const startDrawer = () => {
  addEventListener('keydown', (event) => { if (event.key === 'Escape' && !byId('trial').hidden) closeTrial(); });
  addEventListener('hashchange', openFromAddress);
  openFromAddress();
};
