// Light or dark: as the system has it, until somebody says otherwise.

const dark = matchMedia('(prefers-color-scheme: dark)');
const KEPT_THEME = 'autotune-report-theme';

// A browser may refuse storage to a page that came from a file.
const storage = (area, action) => {
  try { return action(window[area]); } catch { return null; }
};

const theme = () => document.documentElement.dataset.theme || (dark.matches ? 'dark' : 'light');

const themeChanged = () => {
  byId('theme').textContent = theme() === 'dark' ? 'Light' : 'Dark';
  repaint(theme());
};

const startTheme = () => {
  const kept = storage('localStorage', (kept) => kept.getItem(KEPT_THEME));
  if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
  byId('theme').addEventListener('click', () => {
    const other = theme() === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = other;
    storage('localStorage', (kept) => kept.setItem(KEPT_THEME, other));
    themeChanged();
  });
  byId('theme').hidden = false;
  dark.addEventListener('change', themeChanged);
  // What is printed is on white paper.
  addEventListener('beforeprint', () => repaint('light', PRINT_WIDTH_PX));
  addEventListener('afterprint', () => repaint(theme()));
  themeChanged();
};
