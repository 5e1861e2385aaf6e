//! Tests of the egress of apps: they reach the public internet and Casement, and nothing else of this machine or its
//! network.

use std::net::TcpListener;

use casement_test_support::program::Shared;
use serde_json::{Value, json};

use super::programs::{Place, node, python};

/// An app that returns, for each destination, the status of the sandbox's proxy for `CONNECT` and for a plain request,
/// and whether it is reached without the proxy.
const PYTHON: &str = "
import socket
import kernel

app = kernel.App('shop')

def ask(request):
    with socket.create_connection(('127.0.0.1', 3128), timeout=60) as connection:
        connection.sendall(request.encode())
        return connection.recv(100).decode().split(' ')[1]

def is_reached(place):
    host, port = place.rsplit(':', 1)
    try:
        socket.create_connection((host.strip('[]'), int(port)), timeout=10).close()
        return True
    except OSError:
        return False

@app.action('reach')
def reach(context, places):
    def tried(place):
        head = f'Host: {place}\\r\\nConnection: close\\r\\n\\r\\n'
        connect, get = f'CONNECT {place} HTTP/1.1\\r\\n{head}', f'GET http://{place}/ HTTP/1.1\\r\\n{head}'
        return [ask(connect), ask(get), is_reached(place)]

    return {place: tried(place) for place in places}
";

const NODE: &str = r"
const net = require('node:net');
const Kernel = require('@onkernel/sdk');

function ask(request) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(3128, '127.0.0.1', () => socket.write(request));
    socket.once('data', (answer) => {
      resolve(answer.toString().split(' ')[1]);
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

function isReached(place) {
  const at = place.lastIndexOf(':');
  return new Promise((resolve) => {
    const socket = net.connect(Number(place.slice(at + 1)), place.slice(0, at).replace(/[[\]]/g, ''), () => {
      resolve(true);
      socket.destroy();
    });
    socket.setTimeout(10000, () => socket.destroy(new Error('too late')));
    socket.once('error', () => resolve(false));
  });
}

new Kernel().app('shop').action('reach', async (context, places) => {
  const found = {};
  for (const place of places) {
    const head = `Host: ${place}\r\nConnection: close\r\n\r\n`;
    const requests = [`CONNECT ${place} HTTP/1.1\r\n${head}`, `GET http://${place}/ HTTP/1.1\r\n${head}`];
    found[place] = [await ask(requests[0]), await ask(requests[1]), await isReached(place)];
  }
  return found;
});
";

#[test]
fn an_app_reaches_the_api_and_no_other_address_of_the_host_or_its_network() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps that reach out")?;
    let other = TcpListener::bind("127.0.0.1:0")?;
    other.set_nonblocking(true)?;
    let port = other.local_addr()?.port();
    let casement = server.address().to_string();
    let refused: Vec<String> = ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433"]
        .iter()
        .map(|host| format!("{host}:{port}"))
        .chain(["127.0.0.1:5432", "169.254.169.254:80", "10.0.0.1:80"].map(str::to_owned))
        .collect();
    let places: Vec<&String> = [&casement].into_iter().chain(&refused).collect();

    let node = node(NODE);
    let python = python(PYTHON);
    for (files, entrypoint, version) in [(&python[..], "main.py", "python"), (&node[..], "main.cjs", "node")] {
        let deployment = place.bring_files(files, entrypoint, version, &json!({}))?;
        place.until_running(&deployment)?;
        let payload = json!({ "payload": json!(places).to_string() });
        let ended = place.invoke(version, "reach", &payload)?.expect(200)?.json()?;
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let found: Value = serde_json::from_str(ended["output"].as_str().unwrap_or_default())?;
        assert_eq!((&found[&casement][0], &found[&casement][2]), (&json!("200"), &json!(true)), "{version}: {found}");
        for place in &refused {
            let [connect, get, straight] = [0_usize, 1, 2].map(|way| found[place][way].clone());
            let is_refusal = |status: &Value| matches!(status.as_str(), Some("400" | "403" | "502"));
            assert!(is_refusal(&connect) && is_refusal(&get) && straight == json!(false), "{version} {place}: {found}");
        }
        assert!(other.accept().is_err(), "{version} came to another port of this machine");
    }
    Ok(())
}
