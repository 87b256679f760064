// The list of all trials: sorted, filtered, opened.

const STATES = ['measured', 'abandoned', 'failed', 'interrupted', 'running'];

// Choices that are no states, by the property that they ask for.
const CHOICES = [['front', 'on the front'], ['breaks', 'breaks a limit']];

const said = (settings) => settings.map(([name, value]) => `${name}=${value}`).join(', ') || "vLLM's defaults";

const stateMark = (trial) => el('span', { class: `state ${trial.state}` }, trial.state);

const trialColumns = () => [
  {
    label: 'Trial', numeric: true, value: (trial) => trial.number,
    cell: (trial) => {
      const button = el('button', { type: 'button', class: 'link' }, String(trial.number));
      const mark = trial.front ? el('span', { class: 'front-mark', title: 'On the Pareto front' }, '\u2605 ') : null;
      const breaks = trial.breaks ? el('span', { class: 'breaks-mark', title: 'Breaks a limit' }, '! ') : null;
      return el('span', {}, mark, breaks, button);
    },
  },
  { label: 'State', value: (trial) => trial.state, cell: stateMark },
  ...report.objectives.map(({ name, unit, scale }, index) => ({
    label: name, unit, short: name, numeric: true,
    value: (trial) => (trial.values[index] === null ? null : trial.values[index] * scale),
  })),
  { label: 'Took', short: 'took', numeric: true, value: (trial) => trial.took_s, cell: (trial) => duration(trial.took_s) },
  {
    label: 'Settings', class: 'what', value: (trial) => said(trial.settings),
    cell: (trial) => el(
      'div', {},
      trial.why ? el('span', { class: 'why' }, trial.why) : null,
      el('span', {}, `${said(trial.settings)}${trial.purpose}`),
    ),
  },
];

const startTrials = () => {
  const host = byId('all-trials');
  if (!report.trials.length) return;
  const table = dataTable({
    columns: trialColumns(), rows: report.trials, openRow: (trial) => openTrial(trial.number),
  });
  const words = el('input', {
    id: 'filter', type: 'search', placeholder: 'Filter: a number, a setting, a cause', 'aria-label': 'Filter the trials',
  });
  const counts = (state) => report.trials.filter((trial) => trial.state === state).length;
  const state = el(
    'select', { id: 'filter-state', 'aria-label': 'Which trials' },
    el('option', { value: '' }, `All (${report.trials.length})`),
    ...STATES.filter(counts).map((name) => el('option', { value: name }, `${name} (${counts(name)})`)),
    ...CHOICES.filter(([key]) => key === 'front' || report.trials.some((trial) => trial[key])).map(([key, name]) => (
      el('option', { value: key }, `${name} (${report.trials.filter((trial) => trial[key]).length})`))),
  );
  const texts = new Map(report.trials.map((trial) => [
    trial, `${trial.number} ${said(trial.settings)} ${trial.why} ${trial.purpose}`.toLowerCase(),
  ]));
  const choose = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.show(report.trials.filter((trial) => (
      (state.value === '' || trial.state === state.value || trial[state.value] === true)
      && wanted.every((word) => (/^\d+$/.test(word) ? String(trial.number) === word : texts.get(trial).includes(word)))
    )));
  };
  words.addEventListener('input', choose);
  state.addEventListener('change', choose);
  host.replaceChildren(el('div', { class: 'bar' }, words, state), table.element);
};
