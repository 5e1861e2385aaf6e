// The link opens once: a second click would find it used before the first one's answer is here.
'use strict';
let sent = false;
document.querySelector('form').addEventListener('submit', (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
// Whoever comes back may try again.
window.addEventListener('pageshow', () => { sent = false; });
