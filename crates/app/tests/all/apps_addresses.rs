//! Tests of apps that drive their browsers by `cdp_ws_url`, with different public addresses of the server: WebSocket
//! clients ignore the proxy settings.

use std::net::Ipv6Addr;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::ensure;
use casement_test_support::program::{Clients, Options, Server};
use serde_json::{Value, json};

use super::internet::{Front, OURS, within};
use super::programs::{Place, node, python, write_files};

const NODE: &str = r"
const Kernel = require('@onkernel/sdk');
const { chromium } = require('./playwright-core');

async function ask(method, path, body) {
  const headers = { Authorization: `Bearer ${process.env.KERNEL_API_KEY}`, 'Content-Type': 'application/json' };
  return fetch(process.env.KERNEL_BASE_URL + path, { method, headers, body: body && JSON.stringify(body) });
}

new Kernel().app('shop').action('drive', async (context) => {
  const made = await (await ask('POST', '/browsers', { headless: true, invocation_id: context.invocation_id })).json();
  const browser = await chromium.connectOverCDP(made['cdp_ws_url']);
  const page = browser.contexts()[0].pages()[0];
  await page.setContent('<title>driven</title>');
  const title = await page.title();
  await ask('DELETE', `/browsers/${made.session_id}`);
  return [made['cdp_ws_url'].split('/vm/')[0], title];
});
";

const PYTHON: &str = "
import json, os
import httpx, kernel, websocket

app = kernel.App('shop')
# Reads the proxies of the environment, and refuses to start with some values.
headers = {'Authorization': 'Bearer ' + os.environ['KERNEL_API_KEY']}
is_secure = os.environ['KERNEL_BASE_URL'].startswith('https:')
client = httpx.Client(base_url=os.environ['KERNEL_BASE_URL'], headers=headers, timeout=100, verify=is_secure)

@app.action('drive')
def drive(context):
    made = client.post('/browsers', json={'headless': True, 'invocation_id': context.invocation_id}).json()
    # This client would find the proxy of the environment; most others look for none.
    trust = {'ca_certs': os.environ['SSL_CERT_FILE']}
    browser = websocket.create_connection(made['cdp_ws_url'], timeout=100, http_no_proxy=['*'], sslopt=trust)
    browser.send(json.dumps({'id': 1, 'method': 'Target.createTarget', 'params': {'url': 'about:blank'}}))
    answer = json.loads(browser.recv())
    client.delete('/browsers/' + made['session_id'])
    return [made['cdp_ws_url'].split('/vm/')[0], 'driven' if 'targetId' in answer['result'] else answer]
";

const NAME: &str = "casement.test";

/// Writes each app to a folder of its own. Each includes its client, because no registry to install it from is
/// reachable.
fn programs(folder: &Path, trusted: &str) -> anyhow::Result<()> {
    let clients = Clients::find()?;
    write_files(&folder.join("node"), &[&node(NODE)[..], &[("trusted.pem", trusted)]].concat())?;
    write_files(&folder.join("python"), &[&python(PYTHON)[..], &[("trusted.pem", trusted)]].concat())?;
    symlink(clients.node_package("playwright-core"), folder.join("node/playwright-core"))?;
    for package in ["websocket", "httpx", "httpcore", "h11", "anyio", "certifi", "idna"] {
        symlink(clients.python_package(package)?, folder.join("python").join(package))?;
    }
    Ok(())
}

/// Starts a server with this public address, or with the default one, and lets both apps drive a browser.
fn drive(
    options: &Options,
    front: impl Fn(&Server) -> anyhow::Result<Option<Front>>,
    public: Option<&str>,
) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.flags.extend(public.iter().flat_map(|url| ["--public-url".to_owned(), (*url).to_owned()]));
    let server = Server::start(options)?;
    let front = front(&server)?;
    let place = Place::new(&server, "apps that drive")?;
    let folder = tempfile::tempdir()?;
    programs(folder.path(), front.as_ref().map_or("", |front| &front.trusted))?;
    let trusted = "/home/casement/deployment/app/trusted.pem";
    let variables = json!({ "SSL_CERT_FILE": trusted, "NODE_EXTRA_CA_CERTS": trusted });
    let both = [("python", "main.py"), ("node", "main.cjs")];
    let bring =
        |(name, entrypoint): (&str, &str)| place.bring_folder(&folder.path().join(name), entrypoint, name, &variables);
    let brought = [bring(both[0])?, bring(both[1])?];
    let url = public.map_or_else(|| server.url(), str::to_owned).replacen("http", "ws", 1);
    for (deployment, (name, _)) in brought.iter().zip(both) {
        place.until_running(deployment)?;
        let ended = place.invoke(name, "drive", &json!({}))?.expect(200)?.json()?;
        let output: Value = serde_json::from_str(ended["output"].as_str().unwrap_or("null"))?;
        ensure!(output == json!([url, "driven"]), "{name} {url}: {ended}");
    }
    Ok(())
}

#[test]
fn an_app_drives_its_browser_with_any_public_address() -> anyhow::Result<()> {
    within(|internet| {
        internet.name(NAME, &[OURS]);
        let options =
            Options { listen: Some(OURS.into()), resolv_conf: Some(internet.resolv_conf()), ..Options::default() };
        // The default public address: the listen address with its port.
        drive(&options, |_| Ok(None), None)?;
        for scheme in ["http", "https"] {
            let front = |server: &Server| internet.front(NAME, server.address()).map(Some);
            drive(&options, front, Some(&format!("{scheme}://{NAME}")))?;
        }
        Ok(())
    })
}

#[test]
fn an_app_drives_its_browser_at_an_ipv6_address() -> anyhow::Result<()> {
    drive(&Options { listen: Some(Ipv6Addr::LOCALHOST.into()), ..Options::default() }, |_| Ok(None), None)
}
