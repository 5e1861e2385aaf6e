// Reads server-sent events with `fetch`, because an EventSource cannot send the header of the project.
import { call } from './api.js';

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;

/** Yields the events, each with its id, until the stream ends. */
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
 * Follows a stream until it has ended or is refused, and resumes it after a disconnect. Calls `hear` with each event,
 * and `tell` with the state: `live`, `again` (reconnecting) or `ended`. `over` returns whether the end of the stream is
 * final. Returns a function that stops following.
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
