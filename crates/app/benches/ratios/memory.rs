//! Measures the memory of an idle session and of the server.

use casement_test_support::program::{Options, Server};

use crate::client::{Client, first_answer};
use crate::machine::{pss_kib, pss_kib_below, quiet, server_pid};
use crate::table::{Limit, Row, Table};

const SESSIONS: u64 = 4;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let pid = server_pid(&server.data_dir())?;
    let mut client = Client::of(&server)?;
    let mut sizes = Vec::new();
    let mut processes = 0;
    for _ in 0..SESSIONS {
        let session = client.create()?;
        first_answer(&session)?;
        quiet();
        let (size, count) = pss_kib_below(&server.data_dir().join("sandboxes"))?;
        sizes.push(size as f64 / 1024.0);
        processes = count / sizes.len();
    }
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let further = (last - first) / (SESSIONS - 1) as f64;
    let what = format!("a further idle headless session, its agent and {processes} processes in all, PSS");
    table.add(
        Row::new(what, format!("{further:.0} MiB"))
            .against(format!("the first one, {first:.0} MiB"), further / first)
            .target("≤ 125 MiB", further, Limit::Most(125.0)),
    );
    let ours = pss_kib(pid)? as f64 / 1024.0;
    let what = format!("the server with {SESSIONS} sessions, PSS");
    table.add(
        Row::new(what, format!("{ours:.1} MiB"))
            .against(format!("a further session, {further:.0} MiB"), ours / further)
            .target("≤ 64 MiB", ours, Limit::Most(64.0)),
    );
    Ok(())
}
