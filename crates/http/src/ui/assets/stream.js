// Server-sent events by fetch: an EventSource cannot name the project.
import { call } from './api.js';

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;

/** Reads events, each with its id, until the stream ends. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const frames = text.split('\n\n');
    text = frames.pop();
    for (const frame of frames) {
      const lines = frame.split('\n');
      const field = (name) => lines.find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trimStart();
      const data = field('data');
      if (data !== undefined) yield { id: field('id'), data: JSON.parse(data) };
    }
  }
}

/**
 * Follows a stream until it is ended or refused, taking it up again where it broke off. `hear` gets each event, `tell` whether it is
 * `live`, being taken up (`again`), or over (`ended`). `over` says whether an end of the stream was its last.
 */
export function follow(path, { after, hear, tell, over = () => false }) {
  const ending = new AbortController();
  let last = after;
  const run = async () => {
    let pause = FIRST_PAUSE;
    while (!ending.signal.aborted) {
      try {
        const headers = last === undefined ? {} : { 'Last-Event-ID': String(last) };
        const answer = await call(path, { headers, signal: ending.signal });
        tell('live');
        for await (const { id, data } of events(answer.body)) {
          last = id ?? last;
          pause = FIRST_PAUSE;
          hear(data);
        }
        if (over()) return tell('ended');
      } catch (error) {
        if (ending.signal.aborted) return;
        if ([401, 403, 404, 410].includes(error.status)) return tell('ended');
      }
      tell('again');
      await new Promise((resolve) => { setTimeout(resolve, pause); });
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  };
  run();
  return () => ending.abort();
}
