//! Scripts, with the real runner beside a real browser.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::script::{EXECUTE, ExecuteScript, MAX_OUTPUT, MAX_WAITING, ScriptEnd};
use casement_agent_protocol::{AgentConfig, ErrorCode};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::sandbox::{RUNNER, Sandbox, config, gone};

const LONG: Duration = Duration::from_secs(300);

fn scripted() -> AgentConfig {
    AgentConfig { script_runner: Some(Path::new(RUNNER).to_owned()), ..config(true) }
}

async fn execute_for(client: &AgentClient, code: &str, timeout_ms: u64) -> Result<ScriptEnd, ClientError> {
    let requested = ExecuteScript { code: code.to_owned(), timeout_ms, within_ms: None };
    let parts: Vec<_> = client.download(EXECUTE, &requested, LONG).await?.try_collect().await?;
    Ok(serde_json::from_slice(&parts.concat()).unwrap())
}

async fn execute(client: &AgentClient, code: &str) -> ScriptEnd {
    execute_for(client, code, 100_000).await.unwrap()
}

/// What a script that succeeds returns.
async fn result(client: &AgentClient, code: &str) -> Value {
    let end = execute(client, code).await;
    assert!(end.success, "{code}: {end:?}");
    end.result.map_or(Value::Null, |result| serde_json::from_str(result.get()).unwrap())
}

/// Why a script fails.
async fn error(client: &AgentClient, code: &str) -> String {
    let end = execute(client, code).await;
    assert!(!end.success, "{code}: {end:?}");
    end.error.unwrap()
}

async fn started(label: &str) -> (Sandbox, AgentClient) {
    let sandbox = Sandbox::start(&scripted());
    sandbox.ready(label).await;
    let client = sandbox.client().await;
    (sandbox, client)
}

#[tokio::test]
async fn a_script_drives_the_browser_and_gives_back_what_it_returns() {
    let (_sandbox, client) = started("script").await;
    let began = Instant::now();
    assert_eq!(result(&client, "return 1 + 1").await, json!(2));
    println!("the first script: {:?}", began.elapsed());
    let page = "await page.goto('data:text/html,<title>Hello</title>'); return { title: await page.title(), n: context.pages().length }";
    assert_eq!(result(&client, page).await, json!({"title": "Hello", "n": 1}));
    assert_eq!(result(&client, "return page.title()").await, json!("Hello"), "pages outlive their script");
    let types = "enum Colour { Red, Green }\nnamespace N { export const two: number = 2 }\ninterface I { a: string }\n\
                 const f = <T,>(x: T): T => x;\nreturn [Colour.Green, N.two, f<string>('x'), (5 as any) satisfies number]";
    assert_eq!(result(&client, types).await, json!([1, 2, "x", 5]));
    let end = execute(&client, "console.log('out', { a: 1 }); console.error('err')").await;
    assert!(end.success && end.result.is_none(), "{end:?}");
    assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("out { a: 1 }\n", "err\n"));
    assert_eq!(result(&client, "return browser.close()").await, Value::Null);
    assert_eq!(result(&client, "return page.title()").await, json!("Hello"), "the browser outlives its closing");
    assert_eq!(result(&client, "await page.close(); return 1").await, json!(1));
    assert_eq!(
        result(&client, "return page.url()").await,
        json!("about:blank"),
        "a page is opened where there is none"
    );
}

#[tokio::test]
async fn null_is_a_value_and_undefined_is_none() {
    let (_sandbox, client) = started("null").await;
    for (code, wanted) in [("return null", Some("null")), ("return undefined", None), ("1 + 1", None)] {
        let end = execute(&client, code).await;
        assert_eq!(end.result.as_ref().map(|result| result.get()), wanted, "{code}: {end:?}");
        assert!(end.success, "{code}: {end:?}");
    }
}

#[tokio::test]
async fn the_page_is_the_one_that_was_focused_last() {
    let (_sandbox, client) = started("focus").await;
    let open = "for (const n of [1, 2, 3]) await (await context.newPage()).goto(`data:text/html,<title>${n}</title>`); return 0";
    result(&client, open).await;
    let focus = "const pages = context.pages(); for (const p of pages) if (await p.title() === '2') await p.bringToFront(); return 0";
    result(&client, focus).await;
    assert_eq!(result(&client, "return page.title()").await, json!("2"));
}

#[tokio::test]
async fn errors_report_the_line_and_column_of_the_callers_code() {
    let (_sandbox, client) = started("errors").await;
    let thrown =
        error(&client, "interface A { a: number }\n\nconst a: A = { a: 1 };\n  throw new Error('mine ' + a.a)").await;
    assert_eq!(thrown, "Error: mine 1\n    at script.ts:4:9");
    let deep =
        error(&client, "enum E { X }\nfunction f(x: unknown) {\n  return (x as any).y.z;\n}\nreturn f({})").await;
    assert!(
        deep.starts_with("TypeError: ") && deep.contains("at f (script.ts:3:23)") && deep.ends_with("script.ts:5:8"),
        "{deep}"
    );
    for (code, place) in [("let a = 1;\nlet b: = 2;", "2:8"), ("foo(", "1:5"), ("return 1 +* 2", "1:11"), ("}", "1:2")]
    {
        let syntax = error(&client, code).await;
        assert!(
            syntax.starts_with("SyntaxError: ") && syntax.ends_with(&format!("script.ts:{place}")),
            "{code}: {syntax}"
        );
    }
    let playwright = error(&client, "\nawait page.click('#nowhere', { timeout: 100 })").await;
    assert!(
        playwright.starts_with("TimeoutError: page.click") && playwright.ends_with("at script.ts:2:12"),
        "{playwright}"
    );
}

#[tokio::test]
async fn what_json_cannot_hold_is_a_clear_error() {
    let (_sandbox, client) = started("values").await;
    for (code, word) in [
        ("const o: any = {}; o.o = o; return o", "circular"),
        ("return { a: [10n] }", "bigint"),
        ("return () => 1", "function"),
        ("return { a: Symbol('x') }", "symbol"),
        ("return 'x'.repeat(100 << 20)", "at most 10485760"),
        ("return { page }", "\"page\" in the returned value is a Page"),
    ] {
        let error = error(&client, code).await;
        assert!(error.contains(word), "{code}: {error}");
    }
    assert_eq!(result(&client, "return undefined").await, Value::Null);
    assert_eq!(result(&client, "return Buffer.from('ab')").await, json!({"type": "Buffer", "data": [97, 98]}));
    let long = result(&client, "return 'x'.repeat((10 << 20) - 2)").await;
    assert_eq!(long.as_str().unwrap().len(), (10 << 20) - 2);
}

#[tokio::test]
async fn a_script_that_never_ends_is_ended_and_the_next_one_runs() {
    let (sandbox, client) = started("timeout").await;
    result(&client, "return 1").await;
    let end = execute_for(&client, "console.log('so far'); while (true) {}", 10_000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 10 s"));
    assert_eq!(end.stdout, "so far\n", "what it printed is kept");
    let began = Instant::now();
    assert_eq!(result(&client, "return 2").await, json!(2));
    let took = began.elapsed();
    println!("the script after an endless one: {took:?}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let end = execute_for(&client, "await new Promise(() => {})", 1000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 1 s"));
    assert!(sandbox.processes("--user-data-dir").len() > 1, "the browser lives");
}

#[tokio::test]
async fn a_page_that_a_script_left_in_a_loop_is_freed_from_it() {
    let (_sandbox, client) = started("page loop").await;
    result(&client, "return 1").await;
    let end = execute_for(&client, "return await page.evaluate(() => { while (true) {} })", 10_000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 10 s"));
    let began = Instant::now();
    assert_eq!(result(&client, "return await page.evaluate(() => 6 * 7)").await, json!(42));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// What a script sees of the process, of Playwright and of the browser's settings: every function and key that it can reach, and what is
/// set beside them. Two scripts that see the same see nothing of each other.
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
        // What a frame has loaded comes and goes with its page.
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

/// Each leaves something behind, of every kind that a process, a module or a connection to the browser can hold.
const TRACES: &[&str] = &[
    // Globals and what belongs to the language.
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
    // What Node keeps.
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
    // What runs on.
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
    // What hangs on the connection in the browser.
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
        // What the browser's pages hold belongs to the session: each begins where the one before it began.
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
async fn a_script_that_ruins_its_process_ends_in_a_clear_answer() {
    let (sandbox, client) = started("hostile").await;
    for (code, wanted) in [
        ("process.exit(3)", "the script ended its process with exit code 3"),
        ("process.abort()", "the script's process ended by signal"),
        ("process.kill(process.pid, 'SIGKILL')", "the script's process ended by signal 9"),
        (
            "Promise.reject(new Error('nobody')); await page.waitForTimeout(5000)",
            "Unhandled rejection: Error: nobody\n    at script.ts:1:16",
        ),
        (
            "setTimeout(() => { throw new Error('late') }, 1); await page.waitForTimeout(5000)",
            "Uncaught exception: Error: late",
        ),
        ("const all = []; for (;;) all.push(new Array(1e6).fill(1))", "more memory than it may have"),
        ("return Buffer.alloc(4 * 2 ** 30).length", "lloca"),
        ("const all = []; for (let n = 0; n < 40; n++) all.push(Buffer.alloc(100 << 20, 1)); return 1", "lloca"),
        ("require('fs').writeSync(0, Buffer.alloc(64, 255)); await page.waitForTimeout(5000)", "broke off"),
    ] {
        let error = error(&client, code).await;
        assert!(error.contains(wanted), "{code}: {error}");
        assert_eq!(result(&client, "return 7").await, json!(7), "after {code}");
    }
    // The bomb's shells must not outlive their script.
    let bomb = "const { spawn } = require('child_process');
        const child = spawn('sh', ['-c', 'b() { b | b & }; b'], { detached: true, stdio: 'ignore' });
        child.on('error', () => {}); await new Promise(done => setTimeout(done, 1500)); return 'boom'";
    let end = execute_for(&client, bomb, 3000).await.unwrap();
    println!("a fork bomb ends so: {end:?}");
    assert_eq!(result(&client, "return 8").await, json!(8));
    gone(&sandbox, "b() { b").await;
    assert!(sandbox.processes("--user-data-dir").len() > 1, "the browser lives");
}

#[tokio::test]
async fn a_script_sees_nothing_of_the_agent_or_the_server() {
    let (_sandbox, client) = started("secrets").await;
    let env = result(&client, "return Object.keys(process.env).sort()").await;
    let known =
        json!(["HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "NODE_USE_ENV_PROXY", "NO_PROXY", "PATH", "PWD", "USER"]);
    assert_eq!(env, known);
    let files = "const fs = require('fs'); const pids = fs.readdirSync('/proc').filter(n => /^\\d+$/.test(n));
        const lines = pids.map(p => { try { return fs.readFileSync(`/proc/${p}/cmdline`, 'latin1') } catch { return '' } });
        return lines.filter(line => /agent|chromium/.test(line)).length";
    assert_eq!(result(&client, files).await, json!(0), "neither the agent nor the browser can be seen or signalled");
    let fds = "return require('fs').readdirSync('/proc/self/fd').map(fd => { try { return require('fs').readlinkSync('/proc/self/fd/' + fd) } catch { return '' } }).filter(to => to.startsWith('socket:')).length";
    let sockets = result(&client, fds).await;
    assert!(sockets.as_u64().unwrap() <= 2, "its channel and the browser: {sockets}");
}

#[tokio::test]
async fn scripts_run_one_after_the_other_in_order_and_too_many_are_refused() {
    let (sandbox, client) = started("queue").await;
    let client = Arc::new(client);
    let begin = |code: String| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { execute(&client, &code).await })
    };
    result(&client, "return 1").await;
    // It has begun when its page says so, and goes on when that is told to.
    let first = "await page.goto('http://localhost/empty'); await page.evaluate(() => { document.title = 'begun' });
        await page.waitForFunction(() => document.title === 'go on', null, { timeout: 0, polling: 20 }); return Date.now()";
    let first = begin(first.to_owned());
    let mut cdp = Cdp::dial(&sandbox, &client.status().await.unwrap()).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    cdp.until(&page, "document.title", &json!("begun")).await;
    let mut waiting = Vec::new();
    for n in 0..MAX_WAITING {
        waiting.push(begin(format!("console.log({n}); return [{n}, Date.now()]")));
        // What is asked on connections of their own may be read in any order. Each is read before the next one is sent when the agent
        // has answered some questions that came after it.
        for _ in 0..5 {
            client.status().await.unwrap();
        }
    }
    let refused = execute_for(&client, "return 1", 1000).await;
    assert!(matches!(&refused, Err(ClientError::Refused(body)) if body.code == ErrorCode::LimitReached), "{refused:?}");
    assert!(!first.is_finished() && waiting.iter().all(|one| !one.is_finished()));
    cdp.evaluate(&page, "document.title = 'go on'").await;
    let mut last: i64 = serde_json::from_str(first.await.unwrap().result.unwrap().get()).unwrap();
    for (n, end) in waiting.into_iter().enumerate() {
        let end = end.await.unwrap();
        let (number, at): (usize, i64) = serde_json::from_str(end.result.unwrap().get()).unwrap();
        assert_eq!((number, end.stdout), (n, format!("{n}\n")));
        assert!(at >= last, "out of order");
        last = at;
    }
}

#[tokio::test]
async fn a_page_in_a_loop_is_freed_too_when_the_caller_of_its_script_goes_away() {
    let (sandbox, client) = started("page loop, hang-up").await;
    result(&client, "return 1").await;
    let mut cdp = Cdp::dial(&sandbox, &client.status().await.unwrap()).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    let mut looping = Box::pin(execute(&client, "return await page.evaluate(() => { while (true) {} })"));
    let stuck = async {
        while tokio::time::timeout(Duration::from_secs(2), cdp.evaluate(&page, "1")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        end = &mut looping => panic!("it has ended: {end:?}"),
        () = stuck => {}
    }
    drop(looping);
    assert_eq!(result(&client, "return await page.evaluate(() => 6 * 7)").await, json!(42));
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_script() {
    let (sandbox, client) = started("hang-up").await;
    result(&client, "return 1").await;
    let running = execute(&client, "require('child_process').spawn('sleep', ['55']); await new Promise(() => {})");
    tokio::select! {
        end = running => panic!("{end:?}"),
        () = async {
            while sandbox.processes("sleep 55").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => {}
    }
    let began = Instant::now();
    assert_eq!(result(&client, "return 2").await, json!(2));
    println!("the next one after {:?}", began.elapsed());
    gone(&sandbox, "sleep 55").await;
}

#[tokio::test]
async fn a_million_lines_are_cut_and_hold_nothing_up() {
    let (_sandbox, client) = started("output").await;
    let end = execute(&client, "for (let n = 0; n < 1e6; n++) console.log('line ä', n); return 1").await;
    assert!(end.success, "{:?}", end.error);
    assert!((MAX_OUTPUT - 4..=MAX_OUTPUT).contains(&end.stdout.len()), "{}", end.stdout.len());
    assert!(end.stdout.starts_with("line ä 0\n"));
    let end = execute(&client, "for (let n = 0; n < 1e5; n++) process.stdout.write(`line ${n}\n`); return 1").await;
    assert!(end.success, "{:?}", end.error);
    assert!(end.stdout.len() == MAX_OUTPUT, "{}", end.stdout.len());
    let end = execute(&client, "console.log('next')").await;
    assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("next\n", ""));
}

#[tokio::test]
async fn without_a_runner_scripts_are_not_supported() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("no runner").await;
    let refused = execute_for(&sandbox.client().await, "return 1", 1000).await;
    let Err(ClientError::Refused(body)) = refused else { panic!("{refused:?}") };
    assert_eq!(body.code, ErrorCode::NotSupported);
    assert!(body.message.contains("cargo xtask up"), "{}", body.message);
}

#[tokio::test]
async fn a_warm_runner_adds_a_few_milliseconds() {
    let (_sandbox, client) = started("speed").await;
    let code = "return await page.title()";
    result(&client, code).await;
    let mut times = Vec::new();
    for _ in 0..60 {
        let began = Instant::now();
        result(&client, code).await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("a script back to back: p50 {:?}, p95 {:?}", times[30], times[57]);
}
