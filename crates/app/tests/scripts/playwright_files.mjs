// node playwright_files.mjs CDP_WS_URL: downloads, and uploads from the client's machine; prints what the client saw.
import fs from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [endpoint] = process.argv.slice(2);
const browser = await chromium.connectOverCDP(endpoint, { timeout: 120000 });
const context = browser.contexts()[0];
context.setDefaultTimeout(120000);
const page = context.pages()[0];
const refusal = (call) => call().then((value) => ({ value }), (error) => ({ error: error.message.split('\n')[0] }));
const bytes = async (stream) => {
  let count = 0;
  for await (const chunk of stream) count += chunk.length;
  return count;
};

await page.setContent('<a download="report.csv" href="data:text/csv,month,total">Report</a><input type=file><input id=folder type=file webkitdirectory>');
const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
const downloads = {
  name: download.suggestedFilename(),
  failure: await download.failure(),
  saveAs: await refusal(() => download.saveAs(path.resolve('report.csv'))),
  stream: await refusal(async () => bytes(await download.createReadStream())),
  saved: fs.existsSync('report.csv'),
};

fs.mkdirSync('folder', { recursive: true });
fs.writeFileSync('folder/notes.txt', 'a note');
await page.setInputFiles('input >> nth=0', path.resolve('folder/notes.txt'));
const note = await page.evaluate(async () => document.querySelector('input').files[0].text());
// `page.setInputFiles` would repeat the refused command until its timeout; an element's does not.
const input = await page.$('#folder');
const folder = await refusal(() => input.setInputFiles(path.resolve('folder')));
await browser.close();
console.log(JSON.stringify({ downloads, note, folder }));
