// While a study is watched its file is written anew; the page then loads itself again, unless it is in use.

const QUIET_MS = 8000;
const KEPT_PLACE = 'autotune-report-place';

const startRenewal = () => {
  storage('sessionStorage', (kept) => {
    const place = kept.getItem(KEPT_PLACE);
    kept.removeItem(KEPT_PLACE);
    if (place) scrollTo({ top: Number(place), behavior: 'instant' });
  });
  const bar = byId('renewal');
  if (!bar) return;
  let touched = -Infinity;
  const touch = () => { touched = performance.now(); };
  for (const event of ['pointerdown', 'pointermove', 'keydown', 'wheel']) addEventListener(event, touch, { passive: true });
  const renew = () => {
    storage('sessionStorage', (kept) => kept.setItem(KEPT_PLACE, String(scrollY)));
    location.reload();
  };
  const held = () => (
    byId('hold').getAttribute('aria-pressed') === 'true' || document.hidden || performance.now() - touched < QUIET_MS
    || byId('filter')?.value || String(getSelection())
  );
  byId('renew').addEventListener('click', renew);
  byId('hold').addEventListener('click', () => {
    const hold = byId('hold').getAttribute('aria-pressed') !== 'true';
    byId('hold').setAttribute('aria-pressed', String(hold));
    byId('hold').textContent = hold ? 'Go on' : 'Hold';
  });
  let due = performance.now() + 1000 * Math.max(10, Number(bar.dataset.everyS));
  setInterval(() => { if (performance.now() >= due && !held()) { due = Infinity; renew(); } }, 1000);
};
