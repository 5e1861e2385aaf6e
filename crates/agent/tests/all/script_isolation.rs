//! The isolation of scripts from earlier scripts, the agent and the server.

use serde_json::{Value, json};

use crate::sandbox::gone;
use crate::script::*;

/// Describes the process, Playwright and the browser's settings as a script sees them: every reachable function and
/// key, and the settings. Two scripts with the same description see nothing of each other.
const LOOKS: &str = r#"
    const { createHash } = require('crypto');
    const seen = new Set(), lines = [];
    const shared = value => typeof value === 'function' || (typeof value === 'object' && value !== null);
    const walk = (name, object, depth) => {
        if (!shared(object) || seen.has(object) || depth > 6) return;
        seen.add(object);
        if (typeof object === 'function') lines.push(name + ': ' + Function.prototype.toString.call(object).slice(0, 200));
        const up = Object.getPrototypeOf(object);
        walk(name + '^', up, depth + 1);
        for (const key of Reflect.ownKeys(object)) {
            const { value, get, set } = Object.getOwnPropertyDescriptor(object, key);
            const at = name + '.' + String(key);
            lines.push(at + ' ' + typeof value + typeof get + typeof set);
            for (const next of [value, get, set]) if (typeof next === 'function' || (shared(next) && Reflect.ownKeys(next).includes('constructor'))) walk(at, next, depth + 1);
        }
    };
    const own = (name, object) => {
        walk(name + '^', Object.getPrototypeOf(object), 0);
        // The load states of a frame change with its page.
        for (const key of Reflect.ownKeys(object).filter(key => key !== '_loadStates')) {
            const { value } = Object.getOwnPropertyDescriptor(object, key);
            const size = Array.isArray(value) ? value.length : value instanceof Map || value instanceof Set ? value.size : '';
            lines.push(`${name}.${String(key)} ${typeof value} ${typeof value === 'function' ? value : size}`);
        }
        for (const event of object.eventNames?.() ?? []) lines.push(`${name} hears ${String(event)} ${object.listenerCount(event)}`);
    };
    for (const key of Reflect.ownKeys(globalThis)) walk(String(key), Object.getOwnPropertyDescriptor(globalThis, key).value, 1);
    lines.push(Reflect.ownKeys(globalThis).map(String).join());
    for (const name of ['fs', 'net', 'http', 'https', 'events', 'util', 'timers', 'child_process', 'crypto', 'stream', 'url', 'dns', 'module', 'vm']) walk(name, require(name), 1);
    const frame = page.mainFrame(), locator = page.locator('p'), handle = await page.evaluateHandle('1');
    for (const [name, object] of Object.entries({ page, context, browser, frame, request: context.request, keyboard: page.keyboard, mouse: page.mouse,
        clock: page.clock, tracing: context.tracing })) own(name, object);
    for (const [name, object] of Object.entries({ locator, handle, connection: page._connection })) walk(name + '^', Object.getPrototypeOf(object), 0);
    own('process', process);
    lines.push(JSON.stringify([page._timeoutSettings, context._timeoutSettings].map(set => Object.values(set ?? {}).map(value => String(value)))));
    lines.push(JSON.stringify([process.env, process.cwd(), process.umask(), process.title, Buffer.poolSize, Error.stackTraceLimit,
        require('events').defaultMaxListeners, require('http').globalAgent.maxSockets, require('dns').getServers(), Object.keys(require.cache).length,
        performance.getEntries().length, RegExp.input, require('tls').DEFAULT_MIN_VERSION, context.pages().length, browser.contexts().length]));
    await page.goto('http://localhost/headers', { timeout: 60000 });
    const sees = () => [document.body.innerText, Object.keys(window).filter(key => /left/.test(key)), navigator.userAgent, navigator.onLine, navigator.language,
        Intl.DateTimeFormat().resolvedOptions().timeZone, ['print', '(prefers-color-scheme: dark)', '(prefers-reduced-motion: reduce)',
        '(forced-colors: active)'].map(query => matchMedia(query).matches), innerWidth, innerHeight, devicePixelRatio, 'ontouchstart' in window,
        Math.abs(Date.now() - performance.timeOrigin) < 1e9, document.title, 'locks' in navigator];
    lines.push(JSON.stringify(await page.evaluate(sees)));
    const free = await new Promise(done => require('net').connect(4555, '127.0.0.1').on('connect', () => done('taken')).on('error', () => done('free')));
    lines.push(free, `${require('fs').readdirSync('/proc').filter(name => /^[0-9]/.test(name)).length} processes`);
    const text = lines.join('\n');
    console.log('seen');
    return { sum: createHash('sha256').update(text).digest('hex'), text };
"#;

/// Scripts that leave traces of every kind that a process, a module or a connection to the browser can hold.
const TRACES: &[&str] = &[
    // Globals and the language itself.
    "globalThis.left = 1",
    "Array.prototype.push = () => 0; Object.prototype['left'] = 1",
    "(Object.prototype as any).left = 1; Map.prototype.get = () => 'left'",
    "JSON.stringify = () => '\"left\"'; JSON.parse = () => 'left'",
    "Promise.prototype.then = function () { return this }",
    "Symbol.prototype.left = 1; Error.stackTraceLimit = 0; Error.prepareStackTrace = () => 'left'",
    "eval('var left = 1'); (0, eval)('let alsoLeft = 1')",
    "/left/.test('left')",
    "Object.freeze(Object.prototype); Object.freeze(Array.prototype)",
    "Object.defineProperty(globalThis, 'fetch', { value: () => 'left' })",
    "const { constructor: Made }: any = () => {}; Made('pro' + 'cess.env.LEFT = 1')()",
    "const made: any = (async () => {})['construc' + 'tor']; await made('pro' + 'cess.env.LEFT = 1')()",
    "(function (this: any) { return this }).call(null)['pro' + 'cess'].env.LEFT = '1'",
    "pr\\u006fcess.env.LEFT = '1'",
    "Date.now = () => 0; Math.random = () => 0.5; performance.now = () => 0",
    "String.raw = () => 'left'; Reflect.ownKeys = () => []",
    "require('vm').runInThisContext('let leftHere = 1; class LeftToo {}')",
    "Intl.DateTimeFormat = class {} as any; WeakRef.prototype.deref = () => 'left'",
    "URL.prototype.toString = () => 'left'; TextEncoder.prototype.encode = () => new Uint8Array()",
    // The state of Node.
    "console.log = () => {}; console.count('a'); console.group(); console.time('left')",
    "process.env.LEFT = '1'; process.chdir('/tmp'); process.umask(0o77); process.title = 'left'",
    "process.on('exit', () => console.log('left')); process.on('SIGTERM', () => {}); process.emitWarning = () => {}",
    "process.stdout.write = () => true; process.argv.push('left'); process.execArgv.push('left')",
    "process.nextTick = () => {}; process.binding = () => 'left'",
    "Buffer.poolSize = 1; Buffer.from = () => 'left'; Buffer.prototype.toString = () => 'left'",
    "Buffer.from('left in the pool'); Buffer.allocUnsafe(8).fill(65)",
    "require('events').defaultMaxListeners = 1; require('events').prototype.emit = () => true",
    "require('fs').readFileSync = () => 'left'; require('fs').promises.readFile = async () => 'left'",
    "require('http').globalAgent.maxSockets = 1; require('http').request = () => 'left'",
    "require('https').globalAgent = null; require('tls').DEFAULT_MIN_VERSION = 'TLSv1.3'",
    "require('net').Socket.prototype.write = () => true; require('net').connect = () => 'left'",
    "require('dns').setServers(['192.0.2.1']); require('dns').lookup = () => 'left'",
    "const all = require('module'); all._load = () => 'left'; all.prototype.require = () => 'left'",
    "require.cache['left'] = {} as any; require('module').builtinModules.length = 0",
    "require('util').inspect.defaultOptions.depth = 0; require('util').promisify = () => 'left'",
    "require('timers').setTimeout = () => 'left'; globalThis.setTimeout = () => 'left'",
    "require('stream').Writable.prototype.write = () => true; require('zlib').gzip = () => 'left'",
    "require('crypto').randomBytes = () => 'left'; require('crypto').createHash.prototype = null",
    "require('v8').setFlagsFromString('--no-opt')",
    "require('async_hooks').createHook({ init() {} }).enable(); require('async_hooks').executionAsyncId = () => 0",
    "require('diagnostics_channel').channel('net.client.socket').subscribe(() => console.log('left'))",
    "performance.mark('left'); performance.measure('left too')",
    "const { setGlobalDispatcher } = globalThis as any; globalThis.Headers = class {} as any; globalThis.WebSocket = null",
    // Tasks and processes that keep running.
    "setInterval(() => console.log('left'), 1)",
    "const tick = () => setImmediate(() => { console.log('left'); tick() }); tick()",
    "const tick = () => AbortSignal.timeout(5).addEventListener('abort', () => { console.log('left'); tick() }); tick()",
    "const wait = (setTimeout as any)[Symbol.for('nodejs.util.promisify.custom')];
     void (async () => { for (;;) { await wait(5); console.log('left') } })()",
    "const wait = (await import('timers/promises')).setTimeout; void (async () => { for (;;) { await wait(5); console.log('left') } })()",
    "const cell = new Int32Array(new SharedArrayBuffer(4));
     const tick = () => (Atomics as any).waitAsync(cell, 0, 0, 5).value.then(() => { console.log('left'); tick() }); tick()",
    "require('net').createServer().listen(4555, '127.0.0.1'); await new Promise(done => setTimeout(done, 50))",
    "require('child_process').spawn('sleep', ['77'], { detached: true, stdio: 'ignore' }).unref()",
    "require('child_process').spawn('sh', ['-c', '(sleep 77 &) &'], { detached: true, stdio: 'ignore' }).unref()",
    "new (require('worker_threads').Worker)('setInterval(() => console.log(1), 1)', { eval: true })",
    "const { port1, port2 } = new MessageChannel(); port1.on('message', () => port2.postMessage(1)); port2.on('message', () => port1.postMessage(1)); port1.postMessage(1)",
    "require('fs').watch('/tmp', () => console.log('left')); require('dgram').createSocket('udp4').bind(4555)",
    "void page.waitForEvent('popup', { timeout: 0 }).then(() => console.log('left'))",
    "void (async () => { for (;;) { await page.evaluate(() => 1); console.log('left') } })()",
    "void page.evaluate(() => new Promise(() => {}))",
    // Playwright's objects and classes.
    "page.setDefaultTimeout(1); page.setDefaultNavigationTimeout(1)",
    "context.setDefaultTimeout(1); context.setDefaultNavigationTimeout(1)",
    "Object.getPrototypeOf(page).title = async () => 'left'",
    "page.title = async () => 'left'; page.left = 1",
    "page.mainFrame().evaluate = async () => 'left'; (page.mainFrame() as any).goto = async () => null",
    "Object.getPrototypeOf(page.mainFrame()).evaluate = async () => 'left'",
    "Object.getPrototypeOf(page.locator('p')).click = async () => {}",
    "Object.getPrototypeOf(await page.evaluateHandle('1')).jsonValue = async () => 'left'",
    "Object.getPrototypeOf(await page.$('html')).innerText = async () => 'left'",
    "Object.getPrototypeOf(page.keyboard).type = async () => {}; page.mouse.click = async () => {}",
    "Object.getPrototypeOf(context).cookies = async () => ['left']; context.newPage = async () => page",
    "Object.getPrototypeOf(browser).contexts = () => []; (browser as any).close = async () => {}",
    "page['_conn' + 'ection'].dispatch = () => {}; Object.getPrototypeOf(page['_connection']).sendMessageToServer = async () => 'left'",
    "Object.getPrototypeOf(Object.getPrototypeOf(page)).on = () => page; Object.getPrototypeOf(page.request).get = async () => 'left'",
    "require('/run/casement/runner/node_modules/playwright-core').chromium.connectOverCDP = async () => 'left'; require('/run/casement/runner/node_modules/playwright-core').selectors.setTestIdAttribute('left')",
    "await require('/run/casement/runner/node_modules/playwright-core').selectors.register('left', '({ query() {}, queryAll() { return [] } })')",
    "page.on('console', m => console.log('left', m.text())); page.on('load', () => console.log('left')); page.on('dialog', () => {})",
    "context.on('page', () => console.log('left')); context.on('request', () => console.log('left')); browser.on('disconnected', () => {})",
    // The state of the connection in the browser.
    "await page.route('**/*', r => r.abort()); await context.route('**/*', r => r.abort())",
    "await context.addInitScript(() => { (window as any).left = 1 }); await page.addInitScript(() => { (window as any).leftToo = 1 })",
    "await page.exposeFunction('left', () => 1); await context.exposeBinding('leftToo', () => 1)",
    "await page.setExtraHTTPHeaders({ left: 'page' }); await context.setExtraHTTPHeaders({ left: 'context' })",
    "await page.emulateMedia({ media: 'print', colorScheme: 'dark', reducedMotion: 'reduce', forcedColors: 'active' })",
    "await context.setOffline(true)",
    "await context.setGeolocation({ latitude: 1, longitude: 2 }); await context.grantPermissions(['geolocation', 'notifications'])",
    "await page.clock.install({ time: 0 })",
    "await context.newCDPSession(page).then(s => s.send('Emulation.setUserAgentOverride', { userAgent: 'left' }))",
    "const s = await context.newCDPSession(page); await s.send('Emulation.setTimezoneOverride', { timezoneId: 'Asia/Tokyo' });
     await s.send('Emulation.setLocaleOverride', { locale: 'fr-FR' })",
    "const s = await context.newCDPSession(page);
     await s.send('Emulation.setDeviceMetricsOverride', { width: 321, height: 123, deviceScaleFactor: 3, mobile: true });
     await s.send('Emulation.setTouchEmulationEnabled', { enabled: true })",
    "const s = await context.newCDPSession(page); await s.send('Network.enable'); await s.send('Network.setBlockedURLs', { urls: ['*'] });
     await s.send('Fetch.enable'); await s.send('Emulation.setScriptExecutionDisabled', { value: true })",
    "const s = await context.newCDPSession(page); await s.send('Debugger.enable'); await s.send('Page.setInterceptFileChooserDialog', { enabled: true })",
    "await context.tracing.start({ screenshots: true, snapshots: true })",
    "await (await browser.newContext()).newPage()",
    "await page.coverage.startJSCoverage(); await page.coverage.startCSSCoverage()",
];

#[tokio::test]
async fn nothing_of_an_earlier_script_is_alive_in_the_next() {
    let (sandbox, client) = started("freshness").await;
    let mut clean = None;
    let mut before = "nothing";
    for leaves in [""].iter().chain(TRACES).chain(&[""]) {
        // The content of pages belongs to the session, so each script begins with the same blank page.
        let code = format!(
            "await page.goto('about:blank', {{ timeout: 60000 }}); const seen = await (async () => {{ {LOOKS} }})();\n\
             await page.goto('about:blank', {{ timeout: 60000 }}); {{ {leaves}\n; }} return seen"
        );
        let end = execute(&client, &code).await;
        assert!(end.success, "after {before}, leaving {leaves}: {end:?}");
        assert!(end.stdout.starts_with("seen\n"), "after {before}: {}", end.stdout);
        let seen: Value = serde_json::from_str(end.result.unwrap().get()).unwrap();
        let clean = clean.get_or_insert_with(|| seen.clone());
        if clean["sum"] != seen["sum"] {
            let lines = |of: &Value| of["text"].as_str().unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
            let (clean, seen) = (lines(clean), lines(&seen));
            let other: Vec<_> = seen.iter().filter(|line| !clean.contains(line)).take(5).collect();
            let gone: Vec<_> = clean.iter().filter(|line| !seen.contains(line)).take(5).collect();
            panic!("after {before}: {other:#?} instead of {gone:#?}");
        }
        before = leaves;
    }
    // A detached process does not outlive its script.
    gone(&sandbox, "sleep 77").await;
}

#[tokio::test]
async fn a_script_sees_nothing_of_the_agent_or_the_server() {
    let (_sandbox, client) = started("secrets").await;
    let env = result(&client, "return Object.keys(process.env).sort()").await;
    let known =
        "HOME HTTPS_PROXY HTTP_PROXY LANG NODE_USE_ENV_PROXY NO_PROXY PATH PWD USER http_proxy https_proxy no_proxy";
    assert_eq!(env, json!(known.split(' ').collect::<Vec<_>>()));
    let files = "const fs = require('fs'); const pids = fs.readdirSync('/proc').filter(n => /^\\d+$/.test(n));
        const lines = pids.map(p => { try { return fs.readFileSync(`/proc/${p}/cmdline`, 'latin1') } catch { return '' } });
        return lines.filter(line => /agent|chromium/.test(line)).length";
    assert_eq!(result(&client, files).await, json!(0), "neither the agent nor the browser can be seen or signalled");
    let fds = "return require('fs').readdirSync('/proc/self/fd').map(fd => { try { return require('fs').readlinkSync('/proc/self/fd/' + fd) } catch { return '' } }).filter(to => to.startsWith('socket:')).length";
    let sockets = result(&client, fds).await;
    assert!(sockets.as_u64().unwrap() <= 2, "its channel and the browser: {sockets}");
}
