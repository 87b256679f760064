// Elements, and how numbers are said. Text is only ever put in as text: nothing here reads HTML.

const el = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

const byId = (id) => document.getElementById(id);

// As `autotune show` has it: more digits than these the noise does not leave true.
const number = (value) => {
  if (value === null || value === undefined) return '-';
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
};

const milliseconds = (seconds) => (seconds === null || seconds === undefined ? '-' : number(seconds * 1000));

const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return '-';
  if (seconds < 59.5) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (seconds < 3599.5) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`;
};

const copyButton = (text) => {
  const button = el('button', { type: 'button' }, 'Copy');
  button.addEventListener('click', async () => {
    button.textContent = (await copy(text())) ? 'Copied' : 'Not copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  return button;
};

// A page that came over plain HTTP from another machine has no clipboard of its own; the selection still works.
const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', { style: 'position:fixed;opacity:0' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
};

// `shown` is the text with what cannot be seen made visible; what is copied is exact.
const command = (text, shown) => el(
  'div', { class: 'copied' }, el('pre', { class: 'command' }, shown ?? text), copyButton(() => text),
);
