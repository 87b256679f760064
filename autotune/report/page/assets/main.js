// Unpacks what came with the page, and starts its parts.

const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).text();
};

let report = null;

const start = async () => {
  for (const place of document.querySelectorAll('[data-copy]')) {
    place.append(copyButton(() => place.dataset.copy));
  }
  report = JSON.parse(await unpacked('data'));
  startTheme();
  startTrials();
  for (const link of document.querySelectorAll('[data-trial]')) {
    link.addEventListener('click', () => openTrial(Number(link.dataset.trial)));
    link.disabled = false;
  }
  startDrawer();
  startRenewal();
  document.body.append(el('script', {}, await unpacked('plotly')));
  await startPlots();
  openFromAddress();
  document.documentElement.dataset.ready = 'yes';
};

start().catch((error) => {
  byId('trouble').hidden = false;
  byId('trouble').append(` (${error})`);
});
