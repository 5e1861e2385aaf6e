// The link opens once: a second click would fail before the response to the first one is received.
'use strict';
let sent = false;
document.querySelector('form').addEventListener('submit', (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
// A person who navigates back to this page may submit again.
window.addEventListener('pageshow', () => { sent = false; });
