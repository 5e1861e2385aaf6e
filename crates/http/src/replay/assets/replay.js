'use strict';
// Plays the video of this page's recording, or shows why there is none. Texts are inserted as text only.
const $ = (id) => document.getElementById(id);
const [film, status, download] = ['film', 'status', 'download'].map($);
const query = new URLSearchParams(location.search);
const source = () => location.pathname.replace(/\/$/, '') + '/film?' + query;

function play() {
  film.src = source();
  film.hidden = false;
  download.href = source();
  download.hidden = false;
  status.textContent = query.has('partial') ? 'The recording failed; this is what could be saved of it.' : '';
}
film.addEventListener('loadedmetadata', () => {
  document.title = 'Recording of ' + Math.round(film.duration) + ' s';
});
film.addEventListener('error', () => { status.textContent = 'The recording cannot be played.'; });

async function look() {
  let answer;
  try {
    answer = await fetch(source(), { headers: { Range: 'bytes=0-0' } });
  } catch {
    status.textContent = 'Not connected. Trying again…';
    setTimeout(look, 3000);
    return;
  }
  if (answer.ok) {
    answer.body.cancel();
    play();
    return;
  }
  const refusal = await answer.json().catch(() => ({}));
  const message = refusal.message || 'There is no recording here.';
  if (message.includes('partial=true')) {
    query.set('partial', 'true');
    look();
  } else if (answer.status === 409 && message.includes('running')) {
    status.textContent = 'Still recording. The film is here once it is stopped.';
    setTimeout(look, 3000);
  } else if (answer.status === 409 && message.includes('being stored')) {
    status.textContent = 'The session has ended; the video is being stored.';
    setTimeout(look, 3000);
  } else {
    status.textContent = message;
  }
}
look();
