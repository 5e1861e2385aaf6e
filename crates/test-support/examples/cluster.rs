//! Starts a cluster on this machine and waits for Ctrl-C: `cargo xtask cluster` builds and runs it.
//!
//! Its arguments are the number of nodes, the port of the load balancer, and further flags of each node.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;
use casement_test_support::program::{Cluster, ClusterOptions, Server};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, port, flags @ ..] = arguments.as_slice() else {
        anyhow::bail!("the arguments are a number of nodes and a port");
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let options = ClusterOptions {
        nodes: nodes.parse().context("the number of nodes")?,
        port: port.parse().context("the port")?,
        flags: &flags,
        first_start: true,
        ..ClusterOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = Cluster::start(options)?;
    announce(&cluster)?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::io::Result::Ok(())
    })?;
    eprintln!("==> ending the nodes and what they share");
    drop(cluster);
    eprintln!("==> everything has ended, and nothing is left");
    Ok(())
}

/// Prints what runs, and what to try.
fn announce(cluster: &Cluster) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (url, key) = (cluster.url(), cluster.key());
    writeln!(out, "\n  The service  {url}\n               HAProxy, which gives each call to the next node")?;
    for (number, node) in cluster.nodes().iter().enumerate() {
        let process = node.pid().context("a node has ended")?;
        writeln!(out, "  Node {}       {} (process {process})", number + 1, url_of(node.address()))?;
    }
    writeln!(out, "  API key      {key}")?;
    let ports: Vec<String> = cluster.nodes().iter().map(|node| url_of(node.address())).collect();
    let (first, last) = (ports.first().context("no node")?, ports.last().context("no node")?);
    let killed = cluster.nodes().first().and_then(Server::pid).context("a node has ended")?;
    writeln!(
        out,
        "\n  Make a browser through one node, and take a picture of it through another:\n\n    \
         KEY={key}\n    \
         ID=$(curl -sX POST {first}/browsers -H \"Authorization: Bearer $KEY\" \\\n      \
         | sed -E 's/.*\"session_id\": ?\"([^\"]+)\".*/\\1/')\n    \
         curl -sX POST {last}/browsers/$ID/computer/screenshot -H \"Authorization: Bearer $KEY\" -o screenshot.png\n\n  \
         Kill a node. The service goes on; after 45 s the sessions of that node end as `node_lost`:\n\n    \
         kill -9 {killed}\n    \
         curl -s {url}/nodes -H \"Authorization: Bearer $KEY\"\n    \
         curl -s {url}/browsers?status=all -H \"Authorization: Bearer $KEY\"\n\n  \
         Ctrl-C ends everything.\n"
    )?;
    Ok(out.flush()?)
}

fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}
