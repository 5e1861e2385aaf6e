// node replay_page.mjs REPLAY_VIEW_URL STOP_PATH: a person at the page of a recording, in a browser of the person's own.
import { chromium } from 'playwright-core';

const own = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'], timeout: 120000 });
try {
  const page = await own.newPage();
  page.setDefaultTimeout(120000);
  const complaints = [];
  // A refusal while it records is logged, too; and a browser requests an icon from every server.
  const expected = (message) => message.text().includes('409') || message.location().url.endsWith('/favicon.ico');
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected(message)) complaints.push(message.text());
  });
  await page.goto(process.argv[2]);
  // While it runs, the page shows that and waits.
  await page.waitForFunction(() => document.getElementById('status').textContent.startsWith('Still recording'), null, { timeout: 120000 });
  // It records for some seconds, then it is stopped.
  await page.waitForTimeout(4000);
  const key = { Authorization: 'Bearer ' + process.env.CASEMENT_KEY };
  const stopped = await fetch(process.env.CASEMENT_URL + process.argv[3], { method: 'POST', headers: key });
  if (stopped.status !== 204) throw new Error('the stop answers ' + stopped.status);
  await page.waitForFunction(() => document.getElementById('film').readyState >= 2, null, { timeout: 120000 });
  const seen = await page.evaluate(async () => {
    const film = document.getElementById('film');
    film.muted = true;
    await film.play();
    await new Promise((resolve) => film.addEventListener('timeupdate', resolve, { once: true }));
    const canvas = document.createElement('canvas');
    canvas.width = film.videoWidth;
    canvas.height = film.videoHeight;
    canvas.getContext('2d').drawImage(film, 0, 0);
    const [red, green, blue] = canvas.getContext('2d').getImageData(canvas.width / 2, canvas.height * 0.75, 1, 1).data;
    return { size: [film.videoWidth, film.videoHeight], seconds: film.duration, colour: [red, green, blue] };
  });
  console.log(JSON.stringify({ ...seen, complaints }));
} finally {
  await own.close();
}
